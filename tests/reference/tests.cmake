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

# The programs' formulas, and what they held and sent, against the second copy.
add_test(NAME formulas_equal_what_the_programs_hold_and_send
         COMMAND ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_formulas.py ${CMAKE_SOURCE_DIR}/tools/run
                 ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_SOURCE_DIR}/docs/corpus.txt)
set_tests_properties(formulas_equal_what_the_programs_hold_and_send PROPERTIES LABELS quick TIMEOUT 240 PROCESSORS 2)

# And on GPUs, with the programs of tests/cuda whose GPUs are pretended.
add_test(NAME formulas_equal_what_the_programs_hold_and_send_on_gpus
         COMMAND ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_formulas.py ${CMAKE_SOURCE_DIR}/tools/run
                 ${CMAKE_BINARY_DIR}/pretended/bin ${CMAKE_SOURCE_DIR}/docs/corpus.txt cuda)
set_tests_properties(formulas_equal_what_the_programs_hold_and_send_on_gpus PROPERTIES LABELS cuda TIMEOUT 240
                                                                                       PROCESSORS 2)

# The program against the reference, tensor by tensor.
add_executable(dump_run ${CMAKE_CURRENT_LIST_DIR}/dump_run.cpp)
target_link_libraries(dump_run PRIVATE stage_run nlohmann_json::nlohmann_json)
function(zero_reference_test name run) # run: dump_run's words; then compare_dump.py's options
  set(dump ${CMAKE_BINARY_DIR}/dump_${name})
  string(JOIN " " options ${ARGN})
  add_test(NAME ${name}
           COMMAND sh -c "rm -rf ${dump} && $<TARGET_FILE:dump_run> ${dump} ${run} && ${ZERO_NUMPY_PYTHON} -B ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compare_dump.py ${dump} ${options}")
  set_tests_properties(${name} PROPERTIES LABELS quick TIMEOUT 120
                       ENVIRONMENT "OPENBLAS_NUM_THREADS=1;OMP_NUM_THREADS=1")
endfunction()
zero_reference_test(reference_agrees_on_tiny "")
zero_reference_test(reference_agrees_on_odd "odd")
zero_reference_test(reference_agrees_on_tiny_in_bf16 "bf16")
zero_reference_test(reference_agrees_on_odd_in_bf16 "odd bf16")
# A run in which fp32 and float64 round every number alike: gradients agree to the last bit or a rounding is misplaced.
zero_reference_test(reference_rounds_where_bf16_training_does "once bf16" --tolerances fp32)

# 16-bit training against fp32.
zero_test(bf16_training exactness LIBS stage_run SOURCES ${CMAKE_CURRENT_LIST_DIR}/../exactness/bf16_test.cpp)
add_test(NAME bf16_loss_curve_follows_fp32
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/../exactness/check_bf16_curves.py
                 $<TARGET_FILE:baseline> ${CMAKE_SOURCE_DIR}/docs/corpus.txt)
set_tests_properties(bf16_loss_curve_follows_fp32 PROPERTIES LABELS exactness TIMEOUT 200 PROCESSORS 2)
