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
