# What needs a GPU: `ctest -L gpu`. Without one every test says why and is skipped, or fails with ZERO_REQUIRE_GPU=1.
# tools/gpu_check.sh builds and runs them, and measures.
set(gpu_tests ${CMAKE_CURRENT_LIST_DIR})

# What stands in this folder runs on the fakes of tests/cuda, too: it would be wrong unseen otherwise.
zero_test(cuda_ledger_is_the_allocators_count cuda RANKS 1 LIBS nccl_over_mpi zero_cuda_on_host stage_run
          SOURCES ${gpu_tests}/memory_test.cpp ${zero_mpi_main})
zero_test(cuda_nccl_of_one_rank_is_the_identity cuda RANKS 1 LIBS nccl_over_mpi zero_cuda_on_host
          SOURCES ${gpu_tests}/nccl_of_one_rank_test.cpp ${zero_mpi_main})

if(NOT TARGET zero_cuda)
  add_executable(no_gpu_backend ${gpu_tests}/no_backend.cpp)
  target_link_libraries(no_gpu_backend PRIVATE zero_device)
  add_test(NAME gpu_tests_need_the_cuda_backend COMMAND no_gpu_backend)
  set_tests_properties(gpu_tests_need_the_cuda_backend PROPERTIES LABELS gpu TIMEOUT 30 SKIP_RETURN_CODE 77)
else()
  set(cuda_tests ${gpu_tests}/../cuda)
  set(as_the_gpu_does ${cuda_tests}/adversary_on_gpu.cpp)
  add_executable(on_gpus ${gpu_tests}/on_gpus.cpp)
  target_link_libraries(on_gpus PRIVATE zero_cuda)

  # zero_gpu_program(NAME LIBRARIES lib... SOURCES file...): a test program on the backend itself.
  function(zero_gpu_program name)
    cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_link_libraries(${name} PRIVATE zero_cuda ${ARG_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY zero_gpu_programs ${name})
  endfunction()

  # zero_gpu_test(NAME GPUS TIMEOUT COMMAND...): the command sees so many GPUs.
  function(zero_gpu_test name gpus timeout)
    add_test(NAME ${name} COMMAND on_gpus ${gpus} ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS gpu TIMEOUT ${timeout} SKIP_RETURN_CODE 77 PROCESSORS 2)
  endfunction()

  # zero_gpu_ranks(NAME RANKS GPUS TIMEOUT PROGRAM): the program on so many ranks.
  function(zero_gpu_ranks name ranks gpus timeout program)
    zero_gpu_test(${name} ${gpus} ${timeout} ${CMAKE_SOURCE_DIR}/tools/run -n ${ranks} $<TARGET_FILE:${program}>)
  endfunction()

  # Kernels, products and queues, as tests/cuda runs them on the host.
  zero_gpu_program(gpu_kernels LIBRARIES GTest::gtest_main
                   SOURCES ${cuda_tests}/every_kernel_test.cpp ${cuda_tests}/layers_test.cpp ${cuda_tests}/sums_test.cpp
                           ${cuda_tests}/products_test.cpp ${as_the_gpu_does})
  zero_gpu_test(gpu_kernels_have_the_bits_of_the_cpu 1 120 $<TARGET_FILE:gpu_kernels>)
  zero_gpu_program(gpu_queues LIBRARIES GTest::gtest_main SOURCES ${cuda_tests}/device_queues_test.cpp
                                                                  ${as_the_gpu_does})
  zero_gpu_test(gpu_queues_are_tied_by_marks 1 60 $<TARGET_FILE:gpu_queues>)

  # Memory and NCCL, with one rank.
  zero_gpu_program(gpu_memory LIBRARIES stage_run GTest::gtest SOURCES ${gpu_tests}/memory_test.cpp ${zero_mpi_main})
  zero_gpu_ranks(gpu_ledger_is_the_allocators_count 1 1 60 gpu_memory)
  zero_gpu_program(gpu_nccl_of_one_rank LIBRARIES GTest::gtest SOURCES ${gpu_tests}/nccl_of_one_rank_test.cpp
                                                                       ${zero_mpi_main})
  zero_gpu_ranks(gpu_nccl_of_one_rank_is_the_identity 1 1 60 gpu_nccl_of_one_rank)

  # Collectives and every stage: ranks that share a GPU, through pinned host memory; and where there are as many GPUs,
  # a GPU for each rank, through NCCL.
  zero_gpu_program(gpu_collectives LIBRARIES GTest::gtest SOURCES ${cuda_tests}/collectives_on_gpu_test.cpp
                                                                  ${zero_mpi_main})
  zero_gpu_program(gpu_stages LIBRARIES exactness_matrix golden GTest::gtest
                   SOURCES ${cuda_tests}/stages_test.cpp ${as_the_gpu_does} ${zero_mpi_main})
  zero_gpu_ranks(gpu_stages_of_1_rank 1 1 240 gpu_stages)
  foreach(ranks 2 4)
    zero_gpu_ranks(gpu_collectives_of_${ranks}_ranks_that_share_a_gpu ${ranks} 1 120 gpu_collectives)
    zero_gpu_ranks(gpu_stages_of_${ranks}_ranks_that_share_a_gpu ${ranks} 1 240 gpu_stages)
    zero_gpu_ranks(gpu_collectives_of_${ranks}_ranks_by_nccl ${ranks} ${ranks} 120 gpu_collectives)
    zero_gpu_ranks(gpu_stages_of_${ranks}_ranks_by_nccl ${ranks} ${ranks} 240 gpu_stages)
  endforeach()

  # A rank that is killed inside a collective ends the job.
  zero_gpu_program(gpu_killed_job LIBRARIES zero_comm SOURCES ${cuda_tests}/killed_job.cpp)
  set(killed "timeout 15 ${CMAKE_SOURCE_DIR}/tools/run -n 3 $<TARGET_FILE:gpu_killed_job>; test $? -eq 3")
  zero_gpu_test(gpu_killed_rank_ends_the_job 1 60 bash -c ${killed})
  set_tests_properties(gpu_killed_rank_ends_the_job PROPERTIES RUN_SERIAL TRUE)

  # The programs, as they are called: one rank, and ranks that share a GPU.
  set(check_backend ${Python3_EXECUTABLE} -B ${cuda_tests}/check_backend.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                    ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_SOURCE_DIR}/tools/run)
  foreach(check the_cpus_digests evaluates_and_offloads_as_the_cpu verifies_library_products chooses_and_says_so
                refuses_in_one_sentence compares_all_stages)
    zero_gpu_test(gpu_programs_${check} 1 180 ${check_backend} ${check} 1)
  endforeach()

  # The same programs on any machine, where no GPU is visible.
  add_test(NAME cuda_programs_say_why_there_is_no_gpu COMMAND ${check_backend} says_why_there_is_no_gpu)
  set_tests_properties(cuda_programs_say_why_there_is_no_gpu PROPERTIES LABELS cuda TIMEOUT 120 PROCESSORS 2)

  # Measures, so that it is no test.
  add_executable(gpu_adamw_bench ${CMAKE_SOURCE_DIR}/tests/bench/gpu_adamw_bench.cpp)
  target_link_libraries(gpu_adamw_bench PRIVATE zero_cuda)

  get_property(programs GLOBAL PROPERTY zero_gpu_programs)
  add_custom_target(gpu_check DEPENDS programs on_gpus gpu_adamw_bench ${programs})
endif()
