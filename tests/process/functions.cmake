# psring as its users run it: Python scripts (standard library only) that start the programs, one ctest test each, named
# like its script unless that is given. They share the modules of this folder.
find_package(Python3 3.9 COMPONENTS Interpreter)

function(psring_process_test name)
  cmake_parse_arguments(ARG "" "SCRIPT" "LABELS;ARGUMENTS" ${ARGN})
  if(NOT ARG_SCRIPT)
    set(ARG_SCRIPT ${name})
    get_filename_component(name ${name} NAME)
  endif()
  if(Python3_Interpreter_FOUND)
    # -B: no folders of compiled scripts in the source tree.
    set(command ${Python3_EXECUTABLE} -B ${PSRING_TESTS_DIR}/process/${ARG_SCRIPT}.py ${ARG_ARGUMENTS})
  else()
    set(command ${CMAKE_COMMAND} -E echo "SKIPPED: needs Python 3.9 or later")
  endif()
  psring_add_test(${name} COMMAND ${command} LABELS ${ARG_LABELS} ENVIRONMENT
                  PSRING_BIN=$<TARGET_FILE_DIR:psring> PYTHONPATH=${PSRING_TESTS_DIR}/process)
endfunction()

# A bounded share of what scripts/signals draws.
function(psring_signals_test name)
  if(Python3_Interpreter_FOUND)
    psring_add_test(${name} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/signals ${ARGN} LABELS process)
  endif()
endfunction()

# A bounded share of what scripts/combinations goes on with.
function(psring_combinations_test name)
  if(Python3_Interpreter_FOUND)
    psring_add_test(${name} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/combinations ${ARGN} LABELS process)
  endif()
endfunction()
