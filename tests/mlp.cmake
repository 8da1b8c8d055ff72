psring_test(kernels_test LABELS unit LINKS psring::common)
psring_test(mlp_test LABELS unit LINKS psring::worker)
psring_test(mlp_reference_test LABELS unit LINKS psring::worker)
target_compile_definitions(mlp_reference_test
  PRIVATE PSRING_REFERENCE="${CMAKE_CURRENT_SOURCE_DIR}/reference/mlp_reference.py")
psring_test(compute_test LABELS unit LINKS psring::bench)
