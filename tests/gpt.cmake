psring_test(gpt_test LABELS unit SOURCES support/run_layers.cpp LINKS psring::worker)
psring_test(gpt_reference_test LABELS unit SOURCES support/run_layers.cpp LINKS psring::worker)
target_compile_definitions(gpt_reference_test PRIVATE
  PSRING_GPT_REFERENCE="${CMAKE_CURRENT_SOURCE_DIR}/reference/gpt_reference.py")
