#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
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

inline void need(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + ": " + psring_last_error());
}
inline void ok(psring_status status, const std::string& what) { need(status == PSRING_OK, what); }
/// The call was refused, by a line with this text.
inline void refused(psring_status status, const std::string& text) {
  need(status == PSRING_USAGE && std::string(psring_last_error()).find(text) != std::string::npos,
       "refused with '" + text + "'");
}

inline std::string run(const JobOptions& options, const std::function<void(psring_job*)>& body) {
  const CJobs jobs(options);
  std::vector<std::string> errors(options.workers);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < options.workers; ++rank)
      threads.emplace_back([&, rank] {
        psring_job* job = nullptr;
        try {
          job = jobs.join(static_cast<std::int64_t>(rank));
          body(job);
          ok(psring_leave(job, 60), "leave");
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
        psring_free(job);
      });
  }
  std::string all;
  for (const std::string& error : errors) all += error;
  return all;
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
