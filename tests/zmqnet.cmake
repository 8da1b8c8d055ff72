psring_test(handshake_test LABELS unit LINKS psring::common)
psring_test(zmq_test LABELS unit LINKS psring::common cppzmq)
psring_test(tcp_test LABELS unit LINKS psring::common)
psring_test(link_shaping_test LABELS unit LINKS psring::common)
