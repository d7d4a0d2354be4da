# The CUDA backend without a GPU: the same .cu files, compiled by the C++ compiler with tests/fakes/cuda_on_host in place
# of the toolkit's headers.
file(GLOB cuda_on_host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host/*.cpp)
foreach(source ${zero_cuda_sources})
  if(source MATCHES "\\.cu$")
    set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  endif()
endforeach()
add_library(zero_cuda_on_host STATIC ${zero_cuda_sources} ${cuda_on_host_sources})
target_include_directories(zero_cuda_on_host BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host)
target_link_libraries(zero_cuda_on_host PUBLIC zero_device)

set(print_counts ${CMAKE_CURRENT_LIST_DIR}/print_counts.cpp)
zero_test(cuda_kernels_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/every_kernel_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/layers_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/sums_test.cpp
                                                                ${print_counts})
zero_test(cuda_products_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/products_test.cpp
                                                                 ${print_counts})
zero_test(cuda_faults_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/faults_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/runtime_test.cpp)

# The real compiler: every source for every target with warnings as errors, and its PTX beside what the arithmetic
# contract allows. Without nvcc the first says so and is skipped, and so is the second.
set(compile_gate ${CMAKE_CURRENT_BINARY_DIR}/cuda_compile_gate)
add_test(NAME cuda_compile_gate
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/compile_gate.py --nvcc=${ZERO_NVCC}
                 "--include=${CUDAToolkit_INCLUDE_DIRS}" --host-compiler=${CMAKE_CXX_COMPILER} "--flags=${ZERO_NVCC_FLAGS}" "--targets=${ZERO_CUDA_TARGETS}"
                 --root=${CMAKE_SOURCE_DIR} --out=${compile_gate} ${zero_cuda_sources})
set_tests_properties(cuda_compile_gate PROPERTIES LABELS cuda TIMEOUT 300 SKIP_RETURN_CODE 77 FIXTURES_SETUP cuda_ptx)
add_test(NAME cuda_ptx_keeps_the_arithmetic_contract
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/lint_ptx.py ${compile_gate})
set_tests_properties(cuda_ptx_keeps_the_arithmetic_contract PROPERTIES LABELS cuda TIMEOUT 60 SKIP_RETURN_CODE 77
                                                                       FIXTURES_REQUIRED cuda_ptx)
add_test(NAME cuda_ptx_lint_finds_planted_faults
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/lint_ptx.py --planted)
set_tests_properties(cuda_ptx_lint_finds_planted_faults PROPERTIES LABELS cuda TIMEOUT 60)

# With the real runtime: the library links, and where there is no GPU the backend is refused in one sentence.
if(TARGET zero_cuda)
  add_executable(cuda_devices ${CMAKE_CURRENT_LIST_DIR}/cuda_devices.cpp)
  target_link_libraries(cuda_devices PRIVATE zero_cuda)
  add_test(NAME cuda_real_runtime_counts_devices_or_refuses COMMAND cuda_devices)
  set_tests_properties(cuda_real_runtime_counts_devices_or_refuses PROPERTIES LABELS cuda TIMEOUT 60)
endif()
