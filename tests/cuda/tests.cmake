# The CUDA backend without a GPU: the same .cu files, compiled by the C++ compiler with tests/fakes/cuda_on_host in place
# of the toolkit's headers.
file(GLOB cuda_on_host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host/*.cpp
                                                 ${CMAKE_SOURCE_DIR}/tests/fakes/cublas_on_host/*.cpp)
# Without the processor's own fma each is a call, and a product takes six times as long. The bits are the same.
include(CheckCXXSourceRuns)
check_cxx_source_runs("int main() { return __builtin_cpu_supports(\"fma\") ? 0 : 1; }" ZERO_HOST_HAS_FMA)
set(fma_option $<$<BOOL:${ZERO_HOST_HAS_FMA}>:-mfma>)
foreach(source ${zero_cuda_sources})
  if(source MATCHES "\\.cu$")
    set_source_files_properties(${source} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++;${fma_option}")
  endif()
endforeach()
# Object libraries: all of them is linked, before what other libraries have in place of CUDA. The transports are with
# NCCL's fake, so that tests of kernels need no MPI.
set(cuda_transports ${zero_cuda_sources})
list(FILTER cuda_transports INCLUDE REGEX "/common/comm/cuda/")
set(cuda_of_one_process ${zero_cuda_sources})
list(FILTER cuda_of_one_process EXCLUDE REGEX "/common/comm/cuda/")
add_library(zero_cuda_on_host OBJECT ${cuda_of_one_process} ${cuda_on_host_sources})
target_include_directories(zero_cuda_on_host BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host
                                                           ${CMAKE_SOURCE_DIR}/tests/fakes/cublas_on_host)
target_link_libraries(zero_cuda_on_host PUBLIC zero_device)

file(GLOB nccl_over_mpi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fakes/nccl_over_mpi/*.cpp)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
add_library(nccl_over_mpi OBJECT ${cuda_transports} ${nccl_over_mpi_sources})
target_include_directories(nccl_over_mpi BEFORE PUBLIC ${CMAKE_SOURCE_DIR}/tests/fakes/cuda_on_host)
if(NCCL_INCLUDE_DIR)
  target_include_directories(nccl_over_mpi SYSTEM PUBLIC ${NCCL_INCLUDE_DIR})
else()
  target_include_directories(nccl_over_mpi PUBLIC ${CMAKE_SOURCE_DIR}/tests/fakes/nccl_over_mpi/include)
endif()
target_link_libraries(nccl_over_mpi PUBLIC zero_comm MPI::MPI_C)

set(print_counts ${CMAKE_CURRENT_LIST_DIR}/print_counts.cpp)
set(on_host ${CMAKE_CURRENT_LIST_DIR}/adversary_on_host.cpp)
zero_test(cuda_kernels_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/every_kernel_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/layers_test.cpp
                                                                ${CMAKE_CURRENT_LIST_DIR}/sums_test.cpp
                                                                ${on_host} ${print_counts})
zero_test(cuda_products_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/products_test.cpp
                                                                 ${on_host} ${print_counts})
zero_test(cuda_faults_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/faults_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/runtime_test.cpp ${on_host})
zero_test(cuda_streams_fake_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/streams_fake_test.cpp)
zero_test(cuda_device_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/device_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/device_queues_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/unordered_queues_test.cpp
                                                               ${CMAKE_CURRENT_LIST_DIR}/cublas_test.cpp ${on_host})
zero_test(cuda_cublas_fake_test cuda LIBS zero_cuda_on_host SOURCES ${CMAKE_CURRENT_LIST_DIR}/cublas_fake_test.cpp)
zero_test(cuda_nccl_fake_test cuda RANKS 2 3 4 LIBS zero_cuda_on_host nccl_over_mpi
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/nccl_fake_test.cpp ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)

# Transports and collectives between GPUs: one for each rank (NCCL), one for all (host memory), and of four ranks on two
# GPUs some groups with NCCL and some without. The tests cut the ranks into groups.
foreach(test gpu_transport_test collectives_on_gpu_test)
  add_executable(${test} ${CMAKE_CURRENT_LIST_DIR}/${test}.cpp ${CMAKE_SOURCE_DIR}/tests/support/mpi_main.cpp)
  target_link_libraries(${test} PRIVATE nccl_over_mpi zero_cuda_on_host zero_comm GTest::gtest)
endforeach()
target_sources(gpu_transport_test PRIVATE ${CMAKE_CURRENT_LIST_DIR}/nccl_transport_test.cpp)
# zero_gpu_job(NAME PROGRAM RANKS GPUS SCHEDULE)
function(zero_gpu_job name program ranks gpus schedule)
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tools/run -n ${ranks} $<TARGET_FILE:${program}>)
  set_tests_properties(${name} PROPERTIES LABELS cuda TIMEOUT 120 PROCESSORS 2
                       ENVIRONMENT "CUDA_ON_HOST_DEVICES=${gpus};CUDA_ON_HOST_SCHEDULE=${schedule}")
endfunction()
zero_gpu_job(gpu_transport_n2_lazy gpu_transport_test 2 2 lazy)
zero_gpu_job(gpu_transport_n3_eager_others gpu_transport_test 3 3 eager_others)
zero_gpu_job(gpu_transport_n4_shuffled gpu_transport_test 4 4 shuffled)
foreach(schedule lazy eager_others shuffled)
  foreach(gpus 1 4)
    zero_gpu_job(collectives_of_4_ranks_on_${gpus}_gpus_${schedule} collectives_on_gpu_test 4 ${gpus} ${schedule})
  endforeach()
endforeach()
zero_gpu_job(collectives_of_4_ranks_on_2_gpus_shuffled collectives_on_gpu_test 4 2 shuffled)

# A rank that is killed inside a collective ends the job, whichever way the bytes go.
add_executable(killed_job ${CMAKE_CURRENT_LIST_DIR}/killed_job.cpp)
target_link_libraries(killed_job PRIVATE nccl_over_mpi zero_cuda_on_host zero_comm)
foreach(gpus 1 3)
  set(test killed_rank_ends_the_job_of_3_ranks_on_${gpus}_gpus)
  add_test(NAME ${test} COMMAND bash -c "timeout 15 ${CMAKE_SOURCE_DIR}/tools/run -n 3 $<TARGET_FILE:killed_job>; test $? -eq 3")
  set_tests_properties(${test} PROPERTIES LABELS cuda TIMEOUT 30 PROCESSORS 2 ENVIRONMENT CUDA_ON_HOST_DEVICES=${gpus})
endforeach()

# The stages: every promise on the whole backend.
zero_test(cuda_stages cuda RANKS 1 2 3 4 TIMEOUT 300
          LIBS nccl_over_mpi zero_cuda_on_host exactness_matrix golden
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/stages_test.cpp ${on_host}
                  ${zero_mpi_main} ${print_counts})

add_executable(ignored_wait ${CMAKE_CURRENT_LIST_DIR}/ignored_wait.cpp)
target_link_libraries(ignored_wait PRIVATE nccl_over_mpi zero_cuda_on_host stage_run)
foreach(case stage2 stage3 offload_stage3)
  add_test(NAME cuda_missing_waits_show_in_${case}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_waits.py ${CMAKE_SOURCE_DIR}/tools/run
                   $<TARGET_FILE:ignored_wait> ${case})
  set_tests_properties(cuda_missing_waits_show_in_${case} PROPERTIES LABELS cuda TIMEOUT 240 PROCESSORS 2)
endforeach()

# The programs with a backend of pretended GPUs, as they are called: options, plan, sentences, compare.
foreach(program baseline stage0_ddp stage1_optimizer stage2_gradients stage3_params offload compare plan)
  get_target_property(source ${program} SOURCES)
  get_target_property(folder ${program} SOURCE_DIR)
  get_target_property(libraries ${program} LINK_LIBRARIES)
  list(REMOVE_ITEM libraries zero_cuda)
  add_executable(pretended_${program} ${folder}/${source})
  target_link_libraries(pretended_${program} PRIVATE ${libraries})
  if("zero_train" IN_LIST libraries)
    target_link_libraries(pretended_${program} PRIVATE nccl_over_mpi zero_cuda_on_host)
  endif()
  set_target_properties(pretended_${program} PROPERTIES OUTPUT_NAME ${program}
                                                        RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/pretended/bin)
endforeach()

foreach(check the_cpus_digests evaluates_and_offloads_as_the_cpu verifies_library_products chooses_and_says_so
              one_rank_without_a_gpu_is_named refuses_in_one_sentence compares_all_stages)
  add_test(NAME cuda_backend_${check}
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_backend.py ${CMAKE_BINARY_DIR}/pretended/bin
                   ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_SOURCE_DIR}/tools/run ${check})
  set_tests_properties(cuda_backend_${check} PROPERTIES LABELS cuda TIMEOUT 180 PROCESSORS 2)
endforeach()

# The real compiler: every source for every target with warnings as errors, and its PTX beside what the arithmetic
# contract allows. Without nvcc the first says so and is skipped, and so is the second.
set(nccl_headers ${CMAKE_SOURCE_DIR}/tests/fakes/nccl_over_mpi/include)
if(NCCL_INCLUDE_DIR)
  set(nccl_headers ${NCCL_INCLUDE_DIR})
endif()
set(compile_gate ${CMAKE_CURRENT_BINARY_DIR}/cuda_compile_gate)
add_test(NAME cuda_compile_gate
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/compile_gate.py --nvcc=${ZERO_NVCC}
                 "--include=${CUDAToolkit_INCLUDE_DIRS};${nccl_headers};${MPI_C_INCLUDE_DIRS}"
                 --host-compiler=${CMAKE_CXX_COMPILER} "--flags=${ZERO_NVCC_FLAGS}" "--targets=${ZERO_CUDA_TARGETS}"
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
