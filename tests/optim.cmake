psring_test(optim_test LABELS unit LINKS psring::optim)
psring_test(exact_sum_test LABELS unit LINKS psring::optim)
psring_test(updater_test LABELS unit LINKS psring::optim)
psring_test(schedule_test LABELS unit LINKS psring::optim)
