zero_test(storage_test storage LIBS zero_storage SOURCES ${CMAKE_CURRENT_LIST_DIR}/swap_file_test.cpp
                                                         ${CMAKE_CURRENT_LIST_DIR}/swap_space_test.cpp
                                                         ${CMAKE_CURRENT_LIST_DIR}/swap_refusals_test.cpp
                                                         ${CMAKE_CURRENT_LIST_DIR}/../support/child.cpp)
