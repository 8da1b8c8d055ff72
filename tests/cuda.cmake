# The CUDA backend twice: on the host (support/cuda_on_host), everywhere; and on a GPU, where there is one.
add_library(psring_cuda_on_host OBJECT
  ${PSRING_CUDA_SOURCES}
  support/cuda_on_host/cublas_lt_on_host.cpp
  support/cuda_on_host/cuda_on_host.cpp
  support/cuda_on_host/make_device.cpp
  support/cuda_on_host/nccl_on_host.cpp)
set(kernels ${PSRING_CUDA_SOURCES})
list(FILTER kernels INCLUDE REGEX "\\.cu$")
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-Wno-unknown-pragmas")
target_include_directories(psring_cuda_on_host BEFORE PRIVATE support/cuda_on_host)
target_include_directories(psring_cuda_on_host PRIVATE ${PSRING_LINK_DIR})
target_link_libraries(psring_cuda_on_host PRIVATE psring_flags fmt::fmt)

psring_test(cuda_test LABELS unit LINKS psring::optim psring::ring SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)
psring_test(pool_test LABELS unit LINKS psring::optim psring::ring SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)
psring_test(nccl_group_test LABELS unit LINKS psring::optim psring::ring SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)
psring_test(device_codec_test LABELS unit LINKS psring::worker SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)
psring_test(device_training_test LABELS unit LINKS psring::worker SOURCES $<TARGET_OBJECTS:psring_cuda_on_host>)

psring_test(device_exchange_test WIDEST_ONLY LABELS exchange SOURCES $<TARGET_OBJECTS:psring_cuda_on_host> support/in_process_job.cpp
            support/job_shard.cpp LINKS psring::server psring::worker)

psring_test(gpu_step_test WIDEST_ONLY LABELS unit SOURCES $<TARGET_OBJECTS:psring_cuda_on_host> LINKS psring::bench)

# The same on a GPU, with the module.
function(psring_gpu_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE psring_flags psring_test_main ${ARG_LINKS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(${name} psring_cuda)
  add_test(NAME ${name} COMMAND sh -c "[ -e /dev/nvidiactl ] || { echo 'SKIPPED: there is no GPU'; exit 0; }; exec \"$0\""
           $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION "^SKIPPED: " RUN_SERIAL ON)
endfunction()
if(PSRING_CUDA_FOUND)
  psring_gpu_test(cuda_gpu_test SOURCES cuda_test.cpp LINKS psring::common)
  psring_gpu_test(device_codec_gpu_test SOURCES device_codec_test.cpp LINKS psring::worker)
  psring_gpu_test(device_training_gpu_test SOURCES device_training_test.cpp LINKS psring::worker)
  psring_process_test(gpu_job_test LABELS gpu)
  set_tests_properties(gpu_job_test PROPERTIES RUN_SERIAL ON)
  psring_process_test(kernel_resources_test LABELS unit)
  set_property(TEST kernel_resources_test APPEND PROPERTY ENVIRONMENT
    "PSRING_CUDA_OBJECTS=$<JOIN:$<FILTER:$<TARGET_OBJECTS:psring_cuda>,INCLUDE,\\.cu\\.o$>,:>")
endif()

# Whole jobs on GPUs that the host plays: the front door, and a module in the toolkit's stead, in a folder of their own.
set(played ${CMAKE_CURRENT_BINARY_DIR}/played)
set_target_properties(psring_cuda_on_host PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(psring_cuda_played MODULE $<TARGET_OBJECTS:psring_cuda_on_host> ${PROJECT_SOURCE_DIR}/optim/cuda/module.cpp
  ${PROJECT_SOURCE_DIR}/ring/cuda/module.cpp)
target_include_directories(psring_cuda_played BEFORE PRIVATE support/cuda_on_host)
target_link_libraries(psring_cuda_played PRIVATE psring_flags psring::optim psring::ring)
set_target_properties(psring_cuda_played PROPERTIES OUTPUT_NAME psring_cuda LIBRARY_OUTPUT_DIRECTORY ${played}/lib)
add_executable(psring_played ${PROJECT_SOURCE_DIR}/cli/main.cpp ${PROJECT_SOURCE_DIR}/common/device/cuda_module.cpp)
target_compile_definitions(psring_played PRIVATE PSRING_MODULE_FOLDER="lib" PSRING_MODULE_INSTALLED="${played}/lib")
target_link_libraries(psring_played PRIVATE psring::cli psring_flags)
set_target_properties(psring_played PROPERTIES OUTPUT_NAME psring RUNTIME_OUTPUT_DIRECTORY ${played}/bin)
add_dependencies(psring_played psring_cuda_played)
psring_process_test(played_gpu_job_test SCRIPT gpu_job_test LABELS process)
set_property(TEST played_gpu_job_test APPEND PROPERTY ENVIRONMENT "PSRING_BIN=${played}/bin;PSRING_PLAYED=1")

psring_combinations_test(played_combinations_test 160 --device cuda --bin ${played}/bin)
if(TEST played_combinations_test)
  set_property(TEST played_combinations_test APPEND PROPERTY ENVIRONMENT PSRING_TEST_GPUS=4)
endif()

# The front door as it is where there is no toolkit.
add_executable(psring_without_cuda ${PROJECT_SOURCE_DIR}/cli/main.cpp ${PROJECT_SOURCE_DIR}/common/device/no_cuda.cpp)
target_link_libraries(psring_without_cuda PRIVATE psring::cli psring_flags)
set_target_properties(psring_without_cuda PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
psring_process_test(device_command_test LABELS process)
set_property(TEST device_command_test APPEND PROPERTY ENVIRONMENT "PSRING_WITHOUT_CUDA=$<TARGET_FILE:psring_without_cuda>")

# The programs of a whole build without CUDA, which scripts/test makes beside this one.
if(PSRING_CUDA_FOUND)
  set(without ${PROJECT_SOURCE_DIR}/build/without-cuda/bin)
  psring_process_test(without_cuda_test SCRIPT device_command_test LABELS process)
  set_property(TEST without_cuda_test APPEND PROPERTY ENVIRONMENT "PSRING_BIN=${without};PSRING_WITHOUT_CUDA=${without}/psring")
endif()

# What drives all of it on a GPU machine; the build that it packs is this one.
psring_process_test(gpu_check_test LABELS process)
if(PSRING_CUDA_FOUND)
  set_property(TEST gpu_check_test APPEND PROPERTY ENVIRONMENT "PSRING_CUDA_BUILD=${PROJECT_BINARY_DIR}")
endif()
