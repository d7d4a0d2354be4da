if(NOT ZERO_SANITIZE)
  zero_test(malloc_test quick RANKS 2 LIBS stage_run ${CMAKE_DL_LIBS}
            SOURCES ${CMAKE_CURRENT_LIST_DIR}/malloc_test.cpp ${zero_mpi_main})
  target_link_options(malloc_test PRIVATE -rdynamic)  # so that a failing test can name the caller
endif()
