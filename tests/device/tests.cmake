zero_test(base_test quick LIBS zero_base SOURCES ${CMAKE_CURRENT_LIST_DIR}/base_test.cpp
                                                 ${CMAKE_CURRENT_LIST_DIR}/order_free_sum_test.cpp)
zero_test(scalar_math_test quick LIBS zero_device SOURCES ${CMAKE_CURRENT_LIST_DIR}/scalar_math_test.cpp)
zero_test(cpu_kernels_test quick LIBS zero_device SOURCES ${CMAKE_CURRENT_LIST_DIR}/cpu_kernels_test.cpp
                                                          ${CMAKE_CURRENT_LIST_DIR}/cpu_layers_test.cpp
                                                          ${CMAKE_CURRENT_LIST_DIR}/bf16_kernels_test.cpp
                                                          ${CMAKE_CURRENT_LIST_DIR}/bf16_layers_test.cpp
                                                          ${CMAKE_CURRENT_LIST_DIR}/dropout_test.cpp)
zero_test(same_bits_test quick LIBS zero_device SOURCES ${CMAKE_CURRENT_LIST_DIR}/same_bits_test.cpp)
zero_test(device_test quick LIBS zero_device SOURCES ${CMAKE_CURRENT_LIST_DIR}/device_test.cpp)
