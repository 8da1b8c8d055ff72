# The module; see PsringCuda.cmake. Included where psring's libraries are known.
add_library(psring_cuda MODULE ${PSRING_CUDA_SOURCES} ${PROJECT_SOURCE_DIR}/optim/cuda/module.cpp
  ${PROJECT_SOURCE_DIR}/ring/cuda/module.cpp ${PROJECT_SOURCE_DIR}/worker/model/cuda/module.cpp)
if(PSRING_CUDNN_FOUND)
  target_sources(psring_cuda PRIVATE ${PROJECT_SOURCE_DIR}/worker/model/cuda/fused_attention.cpp)
  target_include_directories(psring_cuda SYSTEM PRIVATE ${PSRING_CUDNN_INCLUDE} ${PSRING_CUDNN_FRONTEND_INCLUDE})
  target_compile_definitions(psring_cuda PRIVATE CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_link_libraries(psring_cuda PRIVATE ${PSRING_CUDNN_LIBRARY})
else()
  target_sources(psring_cuda PRIVATE ${PROJECT_SOURCE_DIR}/worker/model/cuda/no_fused_attention.cpp)
endif()
set_target_properties(psring_cuda PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR}
  INSTALL_RPATH_USE_LINK_PATH ON)
target_include_directories(psring_cuda PRIVATE ${PSRING_NCCL_INCLUDE})
target_link_libraries(psring_cuda PRIVATE psring_flags psring::optim psring::ring psring::common
  CUDA::cudart_static CUDA::cublasLt ${PSRING_NCCL_LIBRARY})
# fmt takes nvcc for a compiler without constexpr.
target_compile_definitions(psring_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
target_compile_options(psring_cuda PRIVATE 
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--Werror=all-warnings;-diag-suppress=554;--expt-relaxed-constexpr;-Xptxas=-v>")
# Each object's kernels, with their registers, stack and spills, in OBJECT.ptxas.
set_target_properties(psring_cuda PROPERTIES CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/keep_ptxas_report.sh)
set_property(TARGET psring_cuda APPEND PROPERTY CUDA_COMPILER_LAUNCHER ${CMAKE_CUDA_COMPILER_LAUNCHER})
# Updates and codecs have the host's bits.
set_source_files_properties(${PROJECT_SOURCE_DIR}/optim/cuda/apply.cu ${PROJECT_SOURCE_DIR}/optim/cuda/compress.cu PROPERTIES COMPILE_OPTIONS -fmad=false)
install(TARGETS psring_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
