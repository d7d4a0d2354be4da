add_test(NAME source_structure COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_structure.py ${CMAKE_SOURCE_DIR})
set_tests_properties(source_structure PROPERTIES LABELS quick)
