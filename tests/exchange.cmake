psring_test(equivalence_test LABELS exchange SOURCES support/in_process_job.cpp LINKS psring::server psring::worker)
psring_test(shard_test LABELS exchange SOURCES support/shard_cluster.cpp LINKS psring::server)
psring_test(shard_update_test LABELS exchange SOURCES support/shard_cluster.cpp LINKS psring::server psring::worker)
psring_test(shard_refusal_test LABELS exchange SOURCES support/shard_cluster.cpp LINKS psring::server)
