add_library(golden STATIC ${CMAKE_CURRENT_LIST_DIR}/golden.cpp)
target_link_libraries(golden PUBLIC stage_run)
add_executable(golden_digests ${CMAKE_CURRENT_LIST_DIR}/golden_digests.cpp)
target_link_libraries(golden_digests PRIVATE golden)

foreach(isa generic avx2 avx512)
  add_test(NAME golden_digests_${isa} COMMAND golden_digests)
  set_tests_properties(golden_digests_${isa} PROPERTIES LABELS exactness ENVIRONMENT ZERO_CPU_ISA=${isa} TIMEOUT 240
                       SKIP_RETURN_CODE 77)
endforeach()
add_test(NAME golden_digests_other_compilers
         COMMAND ${CMAKE_CURRENT_LIST_DIR}/check_compilers.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
set_tests_properties(golden_digests_other_compilers PROPERTIES LABELS exactness TIMEOUT 900 PROCESSORS 2)
