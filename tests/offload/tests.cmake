# What the exactness matrix does not reach: slices around the limits of blocks and chunks, evaluation, faults.
zero_test(offload_slices exactness RANKS 1 3 LIBS stage_run
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/slices_test.cpp ${zero_mpi_main})
zero_test(offload_evaluation exactness RANKS 1 3 LIBS stage_run
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/evaluation_test.cpp ${zero_mpi_main})
zero_test(offload_faults faults RANKS 1 3 LIBS stage_run
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/faults_test.cpp ${zero_mpi_main})

# Whole programs on real ranks, within memory caps, on disks that are full, fail or are tampered with.
add_executable(faulty_program ${CMAKE_CURRENT_LIST_DIR}/faulty_program.cpp)
target_link_libraries(faulty_program PRIVATE zero_train baseline_trainer offload_trainer offload_formula)
foreach(check trains_many_times_its_memory refuses_a_cap_below_one_unit refuses_unusable_options
              refuses_a_directory_without_permission needs_room_and_a_directory_it_may_write_to works_without_direct_io
              keeps_a_second_run_out_of_its_directory names_a_truncated_file names_an_enlarged_file names_a_flipped_bit
              ends_when_a_rank_is_killed ends_when_the_disk_of_one_rank_fails)
  add_test(NAME offload_${check}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_offload.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                   ${CMAKE_SOURCE_DIR}/tools/run $<TARGET_FILE:faulty_program> ${check})
  set_tests_properties(offload_${check} PROPERTIES LABELS faults TIMEOUT 120 SKIP_RETURN_CODE 77 PROCESSORS 2)
endforeach()
