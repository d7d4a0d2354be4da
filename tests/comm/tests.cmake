# Eight ranks cover every world from 1 to 8: the tests cut them into groups.
set(zero_mpi_main ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
zero_test(collectives_test quick RANKS 8 TIMEOUT 300 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/collectives_test.cpp ${zero_mpi_main})
zero_test(transport_test quick RANKS 8 TIMEOUT 300 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/transport_test.cpp ${zero_mpi_main})
zero_test(agree_test quick RANKS 5 LIBS zero_comm SOURCES ${CMAKE_CURRENT_LIST_DIR}/agree_test.cpp ${zero_mpi_main})
zero_test(single_process_test quick LIBS zero_comm SOURCES ${CMAKE_CURRENT_LIST_DIR}/single_process_test.cpp)
zero_test(watchdog_test faults RANKS 3 TIMEOUT 60 LIBS zero_comm
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/watchdog_test.cpp ${zero_mpi_main})

# A job whose rank 1 fails alone ends by itself within seconds, with the status of a failed rank.
add_executable(failing_job ${CMAKE_CURRENT_LIST_DIR}/failing_job.cpp)
target_link_libraries(failing_job PRIVATE zero_comm)
foreach(transport shared messages)
  foreach(way sleeps throws)
    set(test rank_that_${way}_ends_the_job_${transport})
    set(job "${CMAKE_SOURCE_DIR}/tools/run -n 3 $<TARGET_FILE:failing_job> ${transport} ${way}")
    add_test(NAME ${test} COMMAND bash -c "timeout 20 ${job}; test $? -eq 3")
    set_tests_properties(${test} PROPERTIES LABELS faults TIMEOUT 30 PROCESSORS 2)
  endforeach()
endforeach()
