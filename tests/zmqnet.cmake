psring_test(handshake_test LABELS unit LINKS psring::common)
