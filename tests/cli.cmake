psring_test(config_file_test LABELS unit LINKS psring::cli CLI11::CLI11)
psring_test(bound_test LABELS unit LINKS psring::cli)
psring_test(compare_table_test LABELS unit LINKS psring::cli nlohmann_json::nlohmann_json)
psring_test(memory_report_test LABELS unit LINKS psring::cli)
