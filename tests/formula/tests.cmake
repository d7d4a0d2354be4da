zero_test(formula_test quick LIBS zero_tools zero_comm zero_model SOURCES ${CMAKE_CURRENT_LIST_DIR}/formula_test.cpp)
