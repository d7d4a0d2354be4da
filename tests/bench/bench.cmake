# `cmake --build build --target bench` measures the ratios of docs/benchmarks.md, prints them and writes bench.json into
# the build folder. It is no part of the default build or of the tests, which never measure time. The programs can be
# built alone with the target bench_programs, and single benches run with tests/bench/run_bench.py --only.
add_executable(products_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/products_bench.cpp)
target_link_libraries(products_bench PRIVATE zero_device ${CMAKE_DL_LIBS})
if(ZERO_HAVE_DNNL)
  target_compile_definitions(products_bench PRIVATE ZERO_HAVE_DNNL)
  target_include_directories(products_bench PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(products_bench PRIVATE ${DNNL_LIBRARY})
endif()

add_executable(adamw_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/adamw_bench.cpp)
target_link_libraries(adamw_bench PRIVATE zero_device)

add_executable(comm_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/comm_bench.cpp)
target_link_libraries(comm_bench PRIVATE zero_comm)

foreach(name host_adamw_bench sweep_bench)
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE offload_trainer)
  target_compile_definitions(${name} PRIVATE ZERO_BENCH_DATA="${CMAKE_SOURCE_DIR}/docs/corpus.txt")
endforeach()

add_custom_target(bench_programs DEPENDS products_bench adamw_bench comm_bench host_adamw_bench sweep_bench stage0_ddp
                                         stage3_params offload)
add_custom_target(
  bench
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/run_bench.py --build ${CMAKE_BINARY_DIR}
  DEPENDS bench_programs
  USES_TERMINAL)
