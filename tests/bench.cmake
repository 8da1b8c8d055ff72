psring_test(bench_test LABELS process LINKS psring::common)
target_compile_definitions(bench_test PRIVATE PSRING_BENCH="$<TARGET_FILE:psring-bench>")
add_dependencies(bench_test psring-bench)
