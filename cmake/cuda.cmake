# CUDA. Its code is a library of its own (zero_cuda). ZERO_CUDA says whether it is built: AUTO where nvcc, NCCL and a GPU
# are found, so that a build elsewhere takes no longer; ON wherever nvcc and NCCL are found; OFF.
# Whatever it says, tests run the same sources on the host (tests/cuda), and where nvcc is found, through nvcc.
set(ZERO_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where nvcc, NCCL and a GPU are found), ON, OFF")
set_property(CACHE ZERO_CUDA PROPERTY STRINGS AUTO ON OFF)

find_package(CUDAToolkit 12 QUIET)
set(ZERO_NVCC "${CUDAToolkit_NVCC_EXECUTABLE}")
# NCCL comes with the toolkit, in a package of the system, or in the folder NCCL_ROOT; a Python package has no link
# without a version.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64)
file(GLOB zero_cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/device/cuda/*.cu
                                              ${CMAKE_SOURCE_DIR}/common/device/cuda/*.cpp
                                              ${CMAKE_SOURCE_DIR}/common/comm/cuda/*.cpp)
# The targets of every CUDA build: Turing, Ampere, Hopper. And the arithmetic contract: no fma that the source did not
# write; division, square root and subnormals are exact by default.
set(ZERO_CUDA_TARGETS 75 80 90)
set(ZERO_NVCC_FLAGS --fmad=false -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror)

set(build_cuda OFF)
if(ZERO_CUDA STREQUAL "AUTO")
  find_program(NVIDIA_SMI nvidia-smi)
  set(gpus "")
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} -L OUTPUT_VARIABLE gpus ERROR_QUIET)
  endif()
  if(NOT ZERO_NVCC)
    message(STATUS "cuda: off (no nvcc of CUDA 12 or later was found)")
  elseif(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    message(STATUS "cuda: off (nvcc ${CUDAToolkit_VERSION} was found, but no NCCL; NCCL_ROOT names its folder)")
  elseif(NOT gpus MATCHES "GPU 0")
    message(STATUS "cuda: off (nvcc ${CUDAToolkit_VERSION} was found, but no GPU; -DZERO_CUDA=ON builds all the same)")
  else()
    set(build_cuda ON)
  endif()
elseif(ZERO_CUDA)
  if(NOT ZERO_NVCC)
    message(FATAL_ERROR "ZERO_CUDA=ON needs nvcc of CUDA 12 or later, which was not found; set CUDAToolkit_ROOT, or "
                        "ZERO_CUDA=OFF")
  endif()
  if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
    message(FATAL_ERROR "ZERO_CUDA=ON needs NCCL (nccl.h and libnccl), which was not found; set NCCL_ROOT to its folder, "
                        "or ZERO_CUDA=OFF")
  endif()
  set(build_cuda ON)
else()
  message(STATUS "cuda: off (ZERO_CUDA=${ZERO_CUDA})")
endif()

if(build_cuda)
  set(CMAKE_CUDA_COMPILER ${ZERO_NVCC})
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # as CUDA::cudart, so that one of the two is linked
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${ZERO_CUDA_TARGETS})
  endif()
  message(STATUS "cuda: on (nvcc ${CUDAToolkit_VERSION}, sm_${CMAKE_CUDA_ARCHITECTURES}, NCCL of ${NCCL_LIBRARY})")
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  # Of objects: a program that links it has all of it, before what zero_device and zero_comm have in its place.
  add_library(zero_cuda OBJECT ${zero_cuda_sources})
  target_compile_options(zero_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${ZERO_NVCC_FLAGS}>)
  target_include_directories(zero_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(zero_cuda PUBLIC zero_comm zero_device CUDA::cudart CUDA::cublas ${NCCL_LIBRARY})
endif()
