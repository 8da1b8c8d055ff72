# psring as its users run it: Python scripts (standard library only) that start the programs, one ctest test each, named
# like its script unless that is given.
find_package(Python3 3.9 COMPONENTS Interpreter)

function(psring_process_test name)
  cmake_parse_arguments(ARG "" "SCRIPT" "LABELS" ${ARGN})
  if(NOT ARG_SCRIPT)
    set(ARG_SCRIPT ${name})
  endif()
  if(Python3_Interpreter_FOUND)
    # -B: no folders of compiled scripts in the source tree.
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/process/${ARG_SCRIPT}.py)
  else()
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: needs Python 3.9 or later")
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT 300 SKIP_REGULAR_EXPRESSION "SKIPPED: " ENVIRONMENT "PSRING_BIN=$<TARGET_FILE_DIR:psring>;${PSRING_TEST_ENVIRONMENT}")
endfunction()

psring_process_test(bad_input_test LABELS process)
psring_process_test(life_test LABELS process)
psring_process_test(by_hand_test LABELS process)
psring_process_test(doctor_command_test LABELS process)
psring_process_test(attack_test LABELS process)
psring_process_test(run_folder_test LABELS process)
psring_process_test(resume_job_test LABELS process)
psring_process_test(two_runs_test LABELS process)
psring_process_test(recovery_test LABELS process)
psring_process_test(elastic_test LABELS process)
psring_process_test(frame_faults_test LABELS process)
# A bounded share of what scripts/combinations goes on with.
function(psring_combinations_test name)
  if(Python3_Interpreter_FOUND)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/scripts/combinations ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS process TIMEOUT 300 ENVIRONMENT "${PSRING_TEST_ENVIRONMENT}")
  endif()
endfunction()
psring_combinations_test(combinations_test 400 --bin $<TARGET_FILE_DIR:psring>)

add_executable(wrong_strategies process/wrong_strategies.cpp)
target_link_libraries(wrong_strategies PRIVATE psring::cli psring_flags)
set_target_properties(wrong_strategies PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
set_property(TEST run_folder_test APPEND PROPERTY ENVIRONMENT "PSRING_WRONG_STRATEGIES=$<TARGET_FILE:wrong_strategies>")
psring_process_test(netns_test LABELS process netns)

add_executable(collectives_rank process/collectives_rank.cpp)
target_link_libraries(collectives_rank PRIVATE psring::cli psring_flags)
set_target_properties(collectives_rank PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
psring_process_test(lost_rank_test LABELS process)
set_property(TEST lost_rank_test netns_test APPEND PROPERTY ENVIRONMENT "PSRING_COLLECTIVES_RANK=$<TARGET_FILE:collectives_rank>")
# Instrumented code is slower than the links that the test measures.
set_property(TEST netns_test APPEND PROPERTY ENVIRONMENT "PSRING_SANITIZE=${PSRING_SANITIZE}")
