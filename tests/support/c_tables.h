#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <psring/c.h>
#include <psring/tests/support/c_jobs.h>

// A program's tables through the C interface. What is not as it should be is an exception: Catch belongs to one thread.

namespace psring::test {

inline constexpr std::size_t kWidth = 3;
inline constexpr double kRate = 0.5;

inline JobOptions job_with(const std::string& transport, std::size_t workers = 2, std::size_t servers = 3) {
  JobOptions job;
  job.workers = workers;
  job.servers = servers;
  job.transport = transport;
  return job;
}

/// The call was refused, by a line with this text.
inline void refused(psring_status status, const std::string& text) {
  need(status == PSRING_USAGE && std::string(psring_last_error()).find(text) != std::string::npos,
       "refused with '" + text + "'");
}

inline psring_table_options options_of(const char* name, std::size_t most_keys = 64) {
  psring_table_options options{};
  options.size = sizeof options;
  options.name = name;
  options.width = kWidth;
  options.init = "constant:0.25";
  options.most_keys = most_keys;
  return options;
}

inline psring_table* opened(psring_job* job, const char* name = "ads") {
  const psring_table_options options = options_of(name);
  psring_table* table = nullptr;
  ok(psring_table_open(job, &options, &table), "open");
  return table;
}

inline psring_rows* fetched(psring_table* table, const std::vector<std::uint64_t>& keys, std::uint64_t version) {
  psring_rows* rows = nullptr;
  ok(psring_table_fetch(table, keys.data(), keys.size(), version, &rows), "fetch");
  return rows;
}

inline psring_bags bags_of(std::size_t lookups) {
  psring_bags bags{};
  bags.size = sizeof bags;
  bags.lookups = bags.bags = lookups;
  return bags;
}

/// The values of the rows of keys, key by key.
inline std::vector<float> values_of(psring_table* table, const std::vector<std::uint64_t>& keys,
                                    std::uint64_t version) {
  psring_rows* const rows = fetched(table, keys, version);
  ok(psring_rows_wait(rows, 60), "wait");
  std::vector<float> values(keys.size() * kWidth);
  const psring_bags bags = bags_of(keys.size());
  ok(psring_rows_pool(rows, &bags, values.data()), "pool");
  psring_rows_free(rows);
  return values;
}

}  // namespace psring::test
