psring_test(config_file_test LABELS unit LINKS psring::cli CLI11::CLI11)
