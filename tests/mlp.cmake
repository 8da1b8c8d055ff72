psring_test(kernels_test LABELS unit LINKS psring::common)
