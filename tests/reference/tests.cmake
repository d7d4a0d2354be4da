# The independent reference checks itself: its gradients by differences, its formulas against the paper's tables, and
# the comparison with a program's dump against planted mistakes.

# The first Python on the path need not be the one that has NumPy (pyenv, conda): then the system's is taken.
find_program(ZERO_SYSTEM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
mark_as_advanced(ZERO_SYSTEM_PYTHON)
set(ZERO_NUMPY_PYTHON "")
foreach(candidate ${Python3_EXECUTABLE} ${ZERO_SYSTEM_PYTHON})
  if(NOT ZERO_NUMPY_PYTHON AND EXISTS ${candidate})
    execute_process(COMMAND ${candidate} -c "import numpy" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(ZERO_NUMPY_PYTHON ${candidate})
    endif()
  endif()
endforeach()
if(NOT ZERO_NUMPY_PYTHON)
  message(FATAL_ERROR "The tests need a Python with NumPy and ${Python3_EXECUTABLE} has none: install python3-numpy, "
                      "or name one with -DPython3_EXECUTABLE=...")
endif()

foreach(check reference formulas compare)
  add_test(NAME reference_check_${check}
           COMMAND ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_${check}.py)
  set_tests_properties(reference_check_${check} PROPERTIES LABELS quick TIMEOUT 120
                       ENVIRONMENT "OPENBLAS_NUM_THREADS=1;OMP_NUM_THREADS=1")
endforeach()

# The program against the reference, tensor by tensor.
add_executable(dump_run ${CMAKE_CURRENT_LIST_DIR}/dump_run.cpp)
target_link_libraries(dump_run PRIVATE stage_run nlohmann_json::nlohmann_json)
foreach(shape tiny odd)
  set(dump ${CMAKE_BINARY_DIR}/dump_${shape})
  add_test(NAME reference_agrees_on_${shape}
           COMMAND sh -c "rm -rf ${dump} && $<TARGET_FILE:dump_run> ${dump} $<$<STREQUAL:${shape},odd>:odd> && ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/compare_dump.py ${dump}")
  set_tests_properties(reference_agrees_on_${shape} PROPERTIES LABELS quick TIMEOUT 120
                       ENVIRONMENT "OPENBLAS_NUM_THREADS=1;OMP_NUM_THREADS=1")
endforeach()
