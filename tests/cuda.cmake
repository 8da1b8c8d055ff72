# The CUDA backend twice: on the host (support/cuda_on_host), everywhere; and on a GPU, where there is one.
add_library(psring_cuda_on_host OBJECT
  ${PSRING_CUDA_SOURCES}
  support/cuda_on_host/cublas_lt_on_host.cpp
  support/cuda_on_host/cuda_on_host.cpp
  support/cuda_on_host/make_device.cpp)
set(kernels ${PSRING_CUDA_SOURCES})
list(FILTER kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
target_include_directories(psring_cuda_on_host BEFORE PRIVATE support/cuda_on_host)
target_include_directories(psring_cuda_on_host PRIVATE ${PSRING_LINK_DIR})
target_link_libraries(psring_cuda_on_host PRIVATE psring_flags fmt::fmt)

psring_test(cuda_test LABELS unit LINKS psring::common SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)
psring_test(device_training_test LABELS unit LINKS psring::worker SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)

# The front door as it is where there is no toolkit.
add_executable(psring_without_cuda ${PROJECT_SOURCE_DIR}/cli/main.cpp ${PROJECT_SOURCE_DIR}/common/device/no_cuda.cpp)
target_link_libraries(psring_without_cuda PRIVATE psring::cli psring_flags)
set_target_properties(psring_without_cuda PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
psring_process_test(device_command_test LABELS process)
set_property(TEST device_command_test APPEND PROPERTY ENVIRONMENT "PSRING_WITHOUT_CUDA=$<TARGET_FILE:psring_without_cuda>")
