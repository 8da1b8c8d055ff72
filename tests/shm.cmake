psring_test(buffer_test LABELS unit LINKS psring::common)
