psring_test(buffer_test LABELS unit LINKS psring::common)
psring_test(transport_test LABELS unit LINKS psring::common)
psring_test(shm_test LABELS unit LINKS psring::common)
psring_test(local_link_test LABELS unit LINKS psring::common)
