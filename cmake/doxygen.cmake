# `cmake --build build --target docs` writes the reference manual of the public headers, the chapters and the documents to
# build/docs/html; a warning is an error. It is no part of the default build and downloads nothing.
find_package(Doxygen OPTIONAL_COMPONENTS dot)
if(NOT DOXYGEN_FOUND)
  message(STATUS "docs: no target (Doxygen was not found)")
  return()
endif()

set(DOXYGEN_PROJECT_NAME "ZeRO, stage by stage")
set(DOXYGEN_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/docs)
set(DOXYGEN_STRIP_FROM_PATH ${CMAKE_SOURCE_DIR})
set(DOXYGEN_STRIP_FROM_INC_PATH ${CMAKE_SOURCE_DIR})
set(DOXYGEN_INCLUDE_PATH ${CMAKE_SOURCE_DIR})
set(DOXYGEN_FILE_PATTERNS *.h *.md)
# The whole path: a bare README.md would name every chapter's.
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${CMAKE_SOURCE_DIR}/README.md)
# Doxygen before 1.9.8 does not know the names that Markdown hosts give to headings: links to them become plain ones.
set(DOXYGEN_FILTER_PATTERNS "*.md=sed -E -f cmake/doxygen.sed")
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
# Names that say it all need no sentence; what is said must be right.
set(DOXYGEN_EXTRACT_ALL YES)
set(DOXYGEN_WARN_IF_DOC_ERROR YES)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(DOXYGEN_REFERENCED_BY_RELATION YES)
set(DOXYGEN_DOT_IMAGE_FORMAT svg)
if(TARGET Doxygen::dot)
  message(STATUS "docs: Doxygen ${DOXYGEN_VERSION} with graphs (target docs)")
else()
  message(STATUS "docs: Doxygen ${DOXYGEN_VERSION} without graphs, since dot was not found (target docs)")
endif()

file(GLOB zero_docs_folders RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS common stage[0-9]_* offload tools)
file(GLOB zero_docs_pages RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS README.md docs/*.md)
set(DOXYGEN_IMAGE_PATH docs ${zero_docs_folders})
doxygen_add_docs(docs ${zero_docs_pages} ${zero_docs_folders} COMMENT "The reference manual, in build/docs/html/index.html")
