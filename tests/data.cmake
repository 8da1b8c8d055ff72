psring_test(data_test LABELS unit LINKS psring::worker ZLIB::ZLIB)
psring_test(safetensors_test LABELS unit LINKS psring::worker)
