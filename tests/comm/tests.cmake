# Eight ranks cover every world from 1 to 8: the tests cut them into groups.
set(zero_mpi_main ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
zero_test(collectives_test quick RANKS 8 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/collectives_test.cpp ${zero_mpi_main})
zero_test(transport_test quick RANKS 8 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport_test.cpp ${zero_mpi_main})
zero_test(agree_test quick RANKS 5 LIBS zero_comm SOURCES ${CMAKE_CURRENT_LIST_DIR}/agree_test.cpp ${zero_mpi_main})
zero_test(single_process_test quick LIBS zero_comm SOURCES ${CMAKE_CURRENT_LIST_DIR}/single_process_test.cpp)
zero_test(watchdog_test faults RANKS 3 TIMEOUT 60 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/watchdog_test.cpp ${zero_mpi_main})

# A job whose rank 1 never comes ends by itself, with the status of a failed rank.
add_executable(late_rank_job ${CMAKE_CURRENT_LIST_DIR}/late_rank_job.cpp)
target_link_libraries(late_rank_job PRIVATE zero_comm)
foreach(transport shared messages)
  add_test(NAME late_rank_ends_the_job_${transport}
           COMMAND bash -c "timeout 20 ${CMAKE_SOURCE_DIR}/tools/run -n 3 $<TARGET_FILE:late_rank_job> ${transport}; test $? -eq 3")
  set_tests_properties(late_rank_ends_the_job_${transport} PROPERTIES LABELS faults TIMEOUT 30 PROCESSORS 2)
endforeach()
