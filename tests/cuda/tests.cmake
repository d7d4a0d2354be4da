# The CUDA backend without a GPU: the same .cu files, compiled by the C++ compiler with tests/fakes/cuda_on_host in place
# of the toolkit's headers.
file(GLOB zero_cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/device/cuda/*.cu
                                              ${CMAKE_SOURCE_DIR}/common/device/cuda/*.cpp)
file(GLOB cuda_on_host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host/*.cpp)
foreach(source ${zero_cuda_sources})
  if(source MATCHES "\\.cu$")
    set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
  endif()
endforeach()
add_library(zero_cuda_on_host STATIC ${zero_cuda_sources} ${cuda_on_host_sources})
target_include_directories(zero_cuda_on_host BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host)
target_link_libraries(zero_cuda_on_host PUBLIC zero_device)

zero_test(cuda_kernels_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/every_kernel_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/layers_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/sums_test.cpp)
zero_test(cuda_products_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/products_test.cpp)
zero_test(cuda_faults_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/faults_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/runtime_test.cpp)
