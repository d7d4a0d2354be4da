# plan against the second copy of the formulas, which needs the NumPy that tests/reference (earlier in the alphabet) found;
# compare against programs that only pretend to train.
if(NOT ZERO_NUMPY_PYTHON)
  message(FATAL_ERROR "tests/reference/tests.cmake sets ZERO_NUMPY_PYTHON and must be read before tests/tools")
endif()
add_test(NAME plan_equals_python_formulas
         COMMAND ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_plan.py $<TARGET_FILE:plan>)
set_tests_properties(plan_equals_python_formulas PROPERTIES LABELS quick TIMEOUT 120)
add_test(NAME compare_judges_programs
         COMMAND ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_compare_program.py $<TARGET_FILE:compare>
                 $<TARGET_FILE:plan>)
set_tests_properties(compare_judges_programs PROPERTIES LABELS quick TIMEOUT 180 PROCESSORS 2)
add_test(NAME largest_models_are_those_of_the_formulas
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_largest.py $<TARGET_FILE:compare>)
set_tests_properties(largest_models_are_those_of_the_formulas PROPERTIES LABELS quick TIMEOUT 180 PROCESSORS 2)
