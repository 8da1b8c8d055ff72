psring_test(equivalence_test LABELS exchange SOURCES support/in_process_job.cpp LINKS psring::server psring::worker)
