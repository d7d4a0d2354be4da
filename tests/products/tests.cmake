zero_test(products quick LIBS zero_device SOURCES ${CMAKE_CURRENT_LIST_DIR}/canonical_products.cpp
          ${CMAKE_CURRENT_LIST_DIR}/library_products.cpp ${CMAKE_CURRENT_LIST_DIR}/thread_pool.cpp)
if(ZERO_HAVE_DNNL)
  target_compile_definitions(products PRIVATE ZERO_HAVE_DNNL)
endif()
