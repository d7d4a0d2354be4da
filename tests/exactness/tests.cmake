add_library(stage_run STATIC ${CMAKE_CURRENT_LIST_DIR}/../support/stage_run.cpp
                             ${CMAKE_CURRENT_LIST_DIR}/../support/poisoned_device.cpp)
target_link_libraries(stage_run PUBLIC baseline_trainer stage0_ddp_trainer stage1_optimizer_trainer stage2_gradients_trainer
                      stage3_params_trainer stage0_ddp_formula stage1_optimizer_formula stage2_gradients_formula
                      stage3_params_formula offload_trainer offload_formula)
if(ZERO_HAVE_DNNL)
  target_compile_definitions(stage_run PUBLIC ZERO_HAVE_DNNL)
endif()
target_compile_definitions(stage_run PUBLIC ZERO_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")

add_library(exactness_matrix STATIC ${CMAKE_CURRENT_LIST_DIR}/matrix.cpp)
target_link_libraries(exactness_matrix PUBLIC stage_run)
zero_test(exactness exactness RANKS 1 2 3 4 5 7 8 TIMEOUT 300 LIBS golden exactness_matrix
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/exactness_test.cpp ${zero_mpi_main})
zero_test(not_finite exactness RANKS 1 2 3 5 LIBS stage_run
          SOURCES ${CMAKE_CURRENT_LIST_DIR}/not_finite_test.cpp ${zero_mpi_main})
zero_test(exactness_matrix_test exactness LIBS exactness_matrix SOURCES ${CMAKE_CURRENT_LIST_DIR}/matrix_test.cpp)

add_test(NAME loss_falls_on_real_text
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_loss.py ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
                 ${CMAKE_SOURCE_DIR}/tools/run ${CMAKE_SOURCE_DIR}/../shared/data/tinyshakespeare.txt)
set_tests_properties(loss_falls_on_real_text PROPERTIES LABELS exactness TIMEOUT 400 SKIP_RETURN_CODE 77 PROCESSORS 2)
