psring_test(base_test LABELS unit LINKS psring::common)
psring_test(frame_test LABELS unit LINKS psring::common)
psring_test(reliable_link_test LABELS unit LINKS psring::common)
psring_test(reliable_test LABELS unit LINKS psring::common)
