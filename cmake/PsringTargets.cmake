# How psring's own targets are made: one library a folder, one test executable a *_test.cpp.

# One link for all build folders, so that compiler caches see the same paths from each of them.
set(PSRING_LINK_DIR ${PROJECT_SOURCE_DIR}/build/include)

# ccache caches what is compiled with a precompiled header only if it may ignore the macros that the header defines, and
# __TIME__ in it. Paths are relative to the build folder, so that build folders share precompiled headers. With the cache
# of inodes it hashes such a header (70 MB, 0.15 s) once, not for every source. The user's own settings stay in force.
find_program(PSRING_CCACHE ccache)
if(PSRING_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  foreach(key sloppiness base_dir)
    execute_process(COMMAND ${PSRING_CCACHE} --get-config ${key} OUTPUT_VARIABLE ${key} OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  execute_process(COMMAND ${PSRING_CCACHE} --show-config OUTPUT_VARIABLE config)
  string(REPLACE ", " "," sloppiness "${sloppiness}")
  string(JOIN "," sloppiness ${sloppiness} pch_defines time_macros)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=${sloppiness})
  if(NOT base_dir)
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_BASEDIR=${PROJECT_SOURCE_DIR})
  endif()
  if(config MATCHES "\\(default\\) inode_cache")
    list(APPEND CMAKE_CXX_COMPILER_LAUNCHER CCACHE_INODECACHE=true)
  endif()
  list(APPEND CMAKE_CXX_COMPILER_LAUNCHER ${PSRING_CCACHE})
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# The processors that psring is built for. Sources whose names end in _x86 or _arm are chosen by it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(PSRING_PROCESSOR x86)
  set(PSRING_ARCHITECTURE x86-64-v3)
  set(PSRING_LEAST_ARCHITECTURE x86-64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(PSRING_PROCESSOR arm)
  set(PSRING_ARCHITECTURE armv8-a+crc)
  set(PSRING_LEAST_ARCHITECTURE armv8-a)
else()
  message(FATAL_ERROR "psring is built for x86-64 and aarch64, not for ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Code that rarely runs is compiled with -O1, which takes a quarter less time than -O3. GCC 13 and newer take a header that
# was precompiled with -O3 only if the flags for the processor are the same; these follow from -O3.
include(CheckCXXCompilerFlag)
set(PSRING_RARE_FLAGS -O1)
check_cxx_compiler_flag(-munroll-only-small-loops PSRING_HAS_UNROLL_FLAG)
if(PSRING_HAS_UNROLL_FLAG AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND PSRING_RARE_FLAGS -munroll-only-small-loops -mvzeroupper)
endif()

# Flags of our own code: never of those who link us.
add_library(psring_flags INTERFACE)
target_compile_features(psring_flags INTERFACE cxx_std_20)
set(flags
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers
  -march=${PSRING_ARCHITECTURE}
  # No contraction into fused operations: the same expression gives the same bits wherever it is compiled.
  -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_compile_options(psring_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${flags}>"
  # Clang has no `#pragma GCC ivdep`, warns about std::stable_sort inside the library of GCC 12, and wants braces that a
  # list of lists may leave out.
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Wno-unknown-pragmas;-Wno-deprecated-declarations;-Wno-missing-braces>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:$<IF:$<BOOL:$<TARGET_PROPERTY:PSRING_RARELY_RUN>>,${PSRING_RARE_FLAGS},-O3>>")
if(CMAKE_UNITY_BUILD)  # sources that are compiled together look like one header to the compiler
  target_compile_options(psring_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
if(PSRING_SANITIZE)
  target_compile_options(psring_flags INTERFACE -fsanitize=${PSRING_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(psring_flags INTERFACE -fsanitize=${PSRING_SANITIZE})
endif()

# The standard headers that most sources include. Precompiling them saves 0.5 to 1.5 s per source. A source still
# includes what it uses: the preset debug builds without precompiled headers.
set(PSRING_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <cerrno> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring> <deque>
  <filesystem> <fmt/core.h> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <source_location> <span>
  <string> <string_view> <thread> <utility> <variant> <vector>)

# psring_library(common SOURCES ... PUBLIC ... PRIVATE ... HEADERS ...): the target psring_common, alias psring::common.
# RARELY_RUN: code outside of training, compiled with PSRING_RARE_FLAGS.
# HEADERS are libraries of headers that our own sources alone include: who links us needs none of them.
function(psring_library name)
  cmake_parse_arguments(ARG "RARELY_RUN" "" "SOURCES;PUBLIC;PRIVATE;HEADERS" ${ARGN})
  add_library(psring_${name} STATIC ${ARG_SOURCES})
  add_library(psring::${name} ALIAS psring_${name})
  set_target_properties(psring_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
  target_compile_features(psring_${name} PUBLIC cxx_std_20)
  target_include_directories(psring_${name} PUBLIC
    $<BUILD_INTERFACE:${PSRING_LINK_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(psring_${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:psring_flags> ${ARG_PRIVATE})
  if(name STREQUAL common)
    target_precompile_headers(psring_common PRIVATE ${PSRING_PRECOMPILED_HEADERS})
  else()
    target_precompile_headers(psring_${name} REUSE_FROM psring_common)
  endif()
  foreach(library ${ARG_HEADERS})
    target_link_libraries(psring_${name} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  set_target_properties(psring_${name} PROPERTIES PSRING_RARELY_RUN ${ARG_RARELY_RUN})
  if(name MATCHES "^(bench|cli|view)$")  # sources there name their own things alike
    set_target_properties(psring_${name} PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# psring_rarely_run(worker role.cpp ...): the same for single sources of a library whose other sources run all the time.
function(psring_rarely_run name)
  if(CMAKE_UNITY_BUILD)
    return()  # a source with options of its own is compiled alone
  endif()
  set_source_files_properties(${ARGN} TARGET_DIRECTORY psring_${name} PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release>:${PSRING_RARE_FLAGS}>")
endfunction()

# psring_program(psring SOURCES ... LINKS ...): an executable in bin. Libraries in lib beside it are found, as in the Python
# package: with DT_RPATH also those that its libraries need.
function(psring_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE psring_flags ${ARG_LINKS})
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# The environment of every test. Debian 13's PyTorch has no libuv. The distribution's libraries are not instrumented, so
# ZeroMQ's threads look like races.
set(PSRING_TEST_ENVIRONMENT USE_LIBUV=0)
if(PSRING_SANITIZE STREQUAL "thread")
  list(APPEND PSRING_TEST_ENVIRONMENT
    "TSAN_OPTIONS=halt_on_error=1 ignore_noninstrumented_modules=1 suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
endif()

# oneDNN chooses kernels for the processor, and these round differently. So tests of layers, and of the equality of jobs,
# run with the widest instructions, and once more with each of these (SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16,
# AVX512_CORE_AMX).
set(isas)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo wider REGEX "^flags.* avx512f" LIMIT_COUNT 1)
  if(wider)
    set(isas AVX2)
  endif()
endif()
set(PSRING_TEST_ISAS ${isas} CACHE STRING "Instruction sets that tests which compute are run with beside the widest")

# psring_test(base/range_test LABELS unit LINKS psring::common): one ctest test, range_test, from base/range_test.cpp with
# the shared main. KERNELS: it is repeated for each instruction set, because what it checks depends on how kernels round.
# NOT_EMULATED: why a cross-built test is not run by an emulator.
function(psring_test source)
  cmake_parse_arguments(ARG "SERIAL;KERNELS" "NOT_EMULATED" "LABELS;LINKS" ${ARGN})
  get_filename_component(name ${source} NAME)
  add_executable(${name} ${source}.cpp)
  target_link_libraries(${name} PRIVATE psring_flags psring_test_main ${ARG_LINKS})
  # A test's own code is compiled more often than it is run: -O1, and the headers of all tests precompiled.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests PSRING_RARELY_RUN ON)
  target_precompile_headers(${name} REUSE_FROM psring_test_main)
  set(kernels)
  if(ARG_KERNELS)
    set(kernels KERNELS)
  endif()
  set(command ${name})
  if(CMAKE_CROSSCOMPILING AND ARG_NOT_EMULATED)
    set(command ${CMAKE_COMMAND} -E echo "SKIPPED: ${ARG_NOT_EMULATED}")
  endif()
  psring_add_test(${name} ${kernels} COMMAND ${command} LABELS ${ARG_LABELS})
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# Registers a test; with KERNELS also as NAME@ISA for each of PSRING_TEST_ISAS. No time limits here: they are for hangs,
# and scripts/test sets one for all.
function(psring_add_test name)
  cmake_parse_arguments(ARG "KERNELS" "" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
  set(variants ${name})
  if(ARG_KERNELS)
    foreach(isa ${PSRING_TEST_ISAS})
      list(APPEND variants ${name}@${isa})
    endforeach()
  endif()
  foreach(variant ${variants})
    add_test(NAME ${variant} COMMAND ${ARG_COMMAND})
    set(environment ${PSRING_TEST_ENVIRONMENT} ${ARG_ENVIRONMENT})
    if(variant MATCHES "@(.*)")
      list(APPEND environment ONEDNN_MAX_CPU_ISA=${CMAKE_MATCH_1})
    endif()
    set_tests_properties(${variant} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}"
                         SKIP_REGULAR_EXPRESSION "(^|\n)SKIPPED: ")
  endforeach()
endfunction()
