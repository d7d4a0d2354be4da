# The CPU kernels are compiled once for each instruction set and chosen at run time (common/device/cpu_isa.h). Such a
# file includes nothing that could leave an inline function behind for the linker to share between instruction sets:
# no standard library beyond <cstdint> and <cstddef>; its helpers have internal linkage.
#
# -fno-trapping-math: nobody reads the floating-point exception flags, so that a select may compute both of its sides; no
# value changes. -O3 where the build type would stop at -O2, at which gcc 12 vectorises next to nothing.
file(GLOB zero_cpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/device/cpu/*.cpp)
function(zero_cpu_kernels isa)
  add_library(zero_cpu_${isa} OBJECT ${zero_cpu_sources})
  target_compile_definitions(zero_cpu_${isa} PRIVATE ZERO_ISA=${isa})
  target_compile_options(zero_cpu_${isa} PRIVATE -fno-trapping-math $<$<CONFIG:RelWithDebInfo>:-O3> ${ARGN})
  target_sources(zero_device PRIVATE $<TARGET_OBJECTS:zero_cpu_${isa}>)
endfunction()

zero_cpu_kernels(generic)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  zero_cpu_kernels(avx2 -mavx2 -mfma)
  zero_cpu_kernels(avx512 -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512)
  target_compile_definitions(zero_device PRIVATE ZERO_HAVE_X86_ISAS)
endif()
if(ZERO_HAVE_DNNL)
  target_compile_definitions(zero_device PRIVATE ZERO_HAVE_DNNL)
  target_include_directories(zero_device PRIVATE ${DNNL_INCLUDE_DIR})
  target_link_libraries(zero_device PRIVATE ${DNNL_LIBRARY} gomp)  # gomp: its OpenMP, for the number of threads
endif()
