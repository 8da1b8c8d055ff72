psring_test(include_rules_test LABELS unit)
target_compile_definitions(include_rules_test PRIVATE PSRING_SOURCE="${PROJECT_SOURCE_DIR}")

# Not under ThreadSanitizer: it runs whole jobs, of which other tests have each part, and takes minutes there.
if(NOT PSRING_SANITIZE STREQUAL "thread")
  set(flags "")
  if(PSRING_SANITIZE)
    set(flags -fsanitize=${PSRING_SANITIZE})
  endif()
  add_test(NAME install_test COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test.sh ${PROJECT_SOURCE_DIR}
           ${PROJECT_BINARY_DIR} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_COMPILER} "${flags}")
  set_tests_properties(install_test PROPERTIES LABELS process)
endif()
