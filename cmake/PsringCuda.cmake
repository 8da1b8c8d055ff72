# CUDA, where it is wanted and found: PSRING_CUDA_FOUND, and the module libpsring_cuda.so that programs load where a
# run asks for a GPU. Without it everything else is there.
set(PSRING_CUDA AUTO CACHE STRING "Build for GPUs: ON (it has to be found), OFF, or AUTO (where it is found)")
set_property(CACHE PSRING_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT PSRING_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PSRING_CUDA: expected AUTO, ON or OFF, got '${PSRING_CUDA}'")
endif()

# The kernels, and what calls CUDA, by folder: the module is made of them, and tests compile them for the host, too.
set(PSRING_CUDA_SOURCES
  common/device/cuda/device.cpp
  common/device/cuda/elementwise.cu
  common/device/cuda/errors.cpp
  common/device/cuda/kernel_queue.cpp
  common/device/cuda/launches.cpp
  common/device/cuda/pool.cpp
  optim/cuda/applier.cpp
  optim/cuda/apply.cu
  optim/cuda/codec.cpp
  optim/cuda/compress.cu
  optim/cuda/top_k.cu
  ring/cuda/communicator.cpp
  ring/cuda/nccl_calls.cpp
  ring/cuda/nccl_group.cpp
  ring/cuda/watchdog.cpp
  worker/model/cuda/activations.cu
  worker/model/cuda/attention.cu
  worker/model/cuda/columns.cu
  worker/model/cuda/digest.cu
  worker/model/cuda/embedding.cu
  worker/model/cuda/loss.cu
  worker/model/cuda/norm.cu
  worker/model/cuda/products.cpp
  worker/model/cuda/tensor_kernels.cpp)
list(TRANSFORM PSRING_CUDA_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)

set(PSRING_CUDA_FOUND OFF)
set(missing)
if(PSRING_CUDA STREQUAL OFF OR (PSRING_CUDA STREQUAL AUTO AND PSRING_SANITIZE))
  return()
endif()
find_program(PSRING_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(PSRING_NVCC)
  cmake_path(GET PSRING_NVCC PARENT_PATH CUDAToolkit_ROOT)
  cmake_path(GET CUDAToolkit_ROOT PARENT_PATH CUDAToolkit_ROOT)
  find_package(CUDAToolkit 12.0 QUIET)
else()
  list(APPEND missing "nvcc")
endif()
if(PSRING_NVCC AND NOT TARGET CUDA::cublasLt)  # the toolkit has none: what is named, such as PyTorch's
  find_path(PSRING_CUBLAS_INCLUDE cublasLt.h)
  find_library(PSRING_CUBLAS_LIBRARY cublasLt)
  if(PSRING_CUBLAS_INCLUDE AND PSRING_CUBLAS_LIBRARY)
    add_library(CUDA::cublasLt UNKNOWN IMPORTED)
    set_target_properties(CUDA::cublasLt PROPERTIES
      IMPORTED_LOCATION ${PSRING_CUBLAS_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${PSRING_CUBLAS_INCLUDE})
  else()
    list(APPEND missing "cuBLAS (12.0 or later)")
  endif()
endif()
find_path(PSRING_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(PSRING_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT PSRING_NCCL_INCLUDE OR NOT PSRING_NCCL_LIBRARY)
  list(APPEND missing "NCCL")
endif()
if(missing)
  list(JOIN missing ", " missing)
  if(PSRING_CUDA STREQUAL ON)
    message(FATAL_ERROR "PSRING_CUDA=ON: not found: ${missing}. Install the CUDA toolkit and NCCL, or name the toolkit's folder in CUDA_HOME, and others' cuBLAS and NCCL in PSRING_CUBLAS_INCLUDE, PSRING_CUBLAS_LIBRARY, PSRING_NCCL_INCLUDE and PSRING_NCCL_LIBRARY")
  endif()
  message(STATUS "psring without CUDA; not found: ${missing}")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${PSRING_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # and PTX of the latter, for what comes after it
endif()
enable_language(CUDA)
if(PSRING_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${PSRING_CCACHE})
endif()
# Fused attention needs cuDNN, and the headers of its frontend, which scripts/setup test brings.
find_library(PSRING_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(PSRING_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
file(GLOB site_packages ${PROJECT_SOURCE_DIR}/build/pypi/lib/python3*/site-packages/include)
find_path(PSRING_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${site_packages})
if(PSRING_CUDNN_LIBRARY AND PSRING_CUDNN_INCLUDE AND PSRING_CUDNN_FRONTEND_INCLUDE)
  set(PSRING_CUDNN_FOUND ON)
else()
  set(PSRING_CUDNN_FOUND OFF)
  message(STATUS "attention without cuDNN, which is much slower; not found: one of PSRING_CUDNN_LIBRARY, PSRING_CUDNN_INCLUDE, PSRING_CUDNN_FRONTEND_INCLUDE")
endif()
set(PSRING_CUDA_FOUND ON)
message(STATUS "psring with CUDA ${CUDAToolkit_VERSION}, NCCL ${PSRING_NCCL_LIBRARY}")
