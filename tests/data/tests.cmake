zero_test(data_test quick LIBS zero_data SOURCES ${CMAKE_CURRENT_LIST_DIR}/token_file_test.cpp
                                                 ${CMAKE_CURRENT_LIST_DIR}/sampler_test.cpp)
