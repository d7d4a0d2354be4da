# The README and the chapters show what their commands print. After a change of what programs print:
#   tests/docs/check_pages.py --bin build/bin --update README.md stage*/README.md offload/README.md docs/activations.md docs/determinism.md
# A sanitizer makes the same output slowly, so its build leaves these out.
set(check_pages ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/check_pages.py --bin ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
if(NOT ZERO_SANITIZE)
  foreach(chapter stage0_ddp stage1_optimizer stage2_gradients stage3_params offload)
    add_test(NAME chapter_${chapter}_shows_what_is_printed COMMAND ${check_pages} ${CMAKE_SOURCE_DIR}/${chapter}/README.md)
    set_tests_properties(chapter_${chapter}_shows_what_is_printed PROPERTIES LABELS quick TIMEOUT 300 PROCESSORS 2)
  endforeach()
  foreach(page activations determinism)
    add_test(NAME page_on_${page}_shows_what_is_printed COMMAND ${check_pages} ${CMAKE_SOURCE_DIR}/docs/${page}.md)
    set_tests_properties(page_on_${page}_shows_what_is_printed PROPERTIES LABELS quick TIMEOUT 300 PROCESSORS 2)
  endforeach()
  add_test(NAME readme_shows_what_is_printed COMMAND ${check_pages} ${CMAKE_SOURCE_DIR}/README.md)
  set_tests_properties(readme_shows_what_is_printed PROPERTIES LABELS exactness TIMEOUT 600 PROCESSORS 2)
endif()
add_test(NAME a_page_with_wrong_output_is_found_out COMMAND ${check_pages} ${CMAKE_CURRENT_LIST_DIR}/fixture_wrong_output.md)
set_tests_properties(a_page_with_wrong_output_is_found_out PROPERTIES LABELS quick TIMEOUT 60
  PASS_REGULAR_EXPRESSION "fixture_wrong_output.md:3: echo 1 2 3: does not print what is shown")
