psring_test(ring_test LABELS unit LINKS psring::ring SOURCES support/ring_worlds.cpp)
psring_test(hierarchical_test LABELS unit LINKS psring::ring SOURCES support/ring_worlds.cpp)
psring_test(simulated_test LABELS unit LINKS psring::ring)
