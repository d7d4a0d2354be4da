set(zero_mpi_main ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
zero_test(options_test quick LIBS zero_train SOURCES ${CMAKE_CURRENT_LIST_DIR}/options_test.cpp)
zero_test(output_test quick LIBS zero_train SOURCES ${CMAKE_CURRENT_LIST_DIR}/output_test.cpp)
zero_test(run_test quick LIBS zero_train SOURCES ${CMAKE_CURRENT_LIST_DIR}/run_test.cpp
                                                 ${CMAKE_CURRENT_LIST_DIR}/fake_trainer.cpp)
zero_test(state_test quick RANKS 1 3 LIBS zero_train
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/state_test.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_trainer.cpp ${zero_mpi_main})

# Whole programs on real ranks: refusals, and failures in the middle of a run.
add_test(NAME programs_refuse_and_fail_in_one_sentence
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/check_endings.sh ${CMAKE_SOURCE_DIR} ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
set_tests_properties(programs_refuse_and_fail_in_one_sentence PROPERTIES LABELS faults TIMEOUT 180 PROCESSORS 2)

# One update, element by element, against the formula.
zero_test(update_test exactness RANKS 1 3 4 5 LIBS stage_run SOURCES ${CMAKE_CURRENT_LIST_DIR}/update_test.cpp
          ${zero_mpi_main})

# What is said of held-out data, and that training does not notice.
foreach(check independent_of_ranks_and_stage independent_of_batches counts_every_sequence_once training_does_not_notice
              says_what_is_held_out_and_refuses_too_little)
  add_test(NAME evaluation_${check}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_evaluation.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                   ${CMAKE_SOURCE_DIR}/tools/run ${CMAKE_SOURCE_DIR}/docs/corpus.txt ${check})
  set_tests_properties(evaluation_${check} PROPERTIES LABELS exactness TIMEOUT 180 PROCESSORS 2)
endforeach()

# Steps whose loss or gradients are not finite: stopped at or skipped.
add_executable(poisoned_program ${CMAKE_CURRENT_LIST_DIR}/poisoned_program.cpp)
target_link_libraries(poisoned_program PRIVATE zero_train stage_run)
foreach(check stops_where_it_diverges skips_on_all_ranks_alike does_not_skip_for_ever
              large_rates_end_one_way_or_the_other)
  add_test(NAME not_finite_${check}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_not_finite.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                   ${CMAKE_SOURCE_DIR}/tools/run $<TARGET_FILE:poisoned_program> ${check})
  set_tests_properties(not_finite_${check} PROPERTIES LABELS faults TIMEOUT 180 PROCESSORS 2)
endforeach()
