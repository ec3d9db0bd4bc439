# Whether this build has CUDA: sets PENSTOCK_WITH_CUDA and enables the language.
set(PENSTOCK_CUDA AUTO CACHE STRING "Build with CUDA: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE PENSTOCK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PENSTOCK_CUDA_ARCHITECTURES "80-real;90-real;100-real;120" CACHE STRING
    "The GPUs that kernels are built for, as in CMAKE_CUDA_ARCHITECTURES")

set(PENSTOCK_WITH_CUDA OFF)
if(PENSTOCK_CUDA STREQUAL "OFF")
  return()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${PENSTOCK_CUDA_ARCHITECTURES})
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(PENSTOCK_WITH_CUDA ON)
elseif(PENSTOCK_CUDA STREQUAL "ON")
  message(FATAL_ERROR "PENSTOCK_CUDA=ON, but no nvcc that works was found: put it on PATH, name it in "
                      "CMAKE_CUDA_COMPILER, or configure with -DPENSTOCK_CUDA=AUTO")
endif()
