#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include <psring/bench/collectives.h>
#include <psring/bench/contestants.h>
#include <psring/bench/measure.h>
#include <psring/bench/report.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/base/json.h>
#include <psring/common/net/link_shaping.h>
#include <psring/ring/plan/tuning.h>

namespace psring::bench {
namespace {

/// A choice replaces that of the next smaller size only if it is faster by this factor, so that noise makes no rows.
constexpr double kGain = 0.97;
constexpr std::size_t kRest = std::numeric_limits<std::size_t>::max();

std::vector<PsringWay> candidates() {
  std::vector<PsringWay> ways;
  for (const ring::Algorithm* algorithm : ring::kAlgorithms)
    for (const std::size_t segment : {std::size_t{65536}, std::size_t{262144}, std::size_t{1048576}})
      ways.push_back({std::string(algorithm->name), segment});
  return ways;
}

/// Returns whether a way differs from the others: all segments longer than the vector are equivalent.
bool is_distinct(const PsringWay& way, std::size_t bytes) {
  return way.segment_bytes == candidates().front().segment_bytes || way.segment_bytes / 4 < bytes;
}

struct Choice {
  std::size_t bytes = 0;
  PsringWay way;
};

/// Returns one row per run of equal choices. The border lies midway between two sizes on a logarithmic scale.
std::vector<ring::Tuning::Row> rows_of(const std::vector<Choice>& choices, std::size_t ranks) {
  std::vector<ring::Tuning::Row> rows;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const bool last = i + 1 == choices.size();
    if (!last && to_string(choices[i].way) == to_string(choices[i + 1].way)) continue;
    const double border =
        last ? 0
             : std::sqrt(static_cast<double>(choices[i].bytes)) * std::sqrt(static_cast<double>(choices[i + 1].bytes));
    rows.push_back({.ranks = ranks,
                    .up_to_bytes = last ? kRest : static_cast<std::size_t>(border),
                    .algorithm = ring::parse_algorithm("--tune", choices[i].way.algorithm),
                    .segment_bytes = choices[i].way.segment_bytes});
  }
  return rows;
}

const Entry& choose(const std::vector<Entry>& entries, const std::vector<Choice>& choices) {
  const auto time = [](const Entry& entry) { return entry.calls.median(); };
  const Entry* best = &*std::min_element(entries.begin(), entries.end(),
                                         [&](const Entry& a, const Entry& b) { return time(a) < time(b); });
  for (const Entry& entry : entries)
    if (!choices.empty() && entry.way == to_string(choices.back().way) && time(entry) * kGain < time(*best))
      best = &entry;
  return *best;
}

std::string read_whole(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Does the file exist and have a table? A file of psring fit has none before the first --tune.
bool has_table(const std::string& file) {
  if (!std::filesystem::exists(file)) return false;
  const std::optional<Json> json = Json::try_parse(read_whole(file));
  return !json || !json->is_object() || json->contains("all_reduce") || !json->contains("format");
}

}  // namespace

void tune_all_reduce(const CollectivesOptions& options) {
  ring::Tuning tuning;
  if (has_table(options.tune)) tuning = ring::Tuning::load(options.tune);
  std::erase_if(tuning.rows, [&](const ring::Tuning::Row& row) { return row.ranks == options.workers; });
  Contestants contestants(options, candidates());
  fmt::print(
      "{}\nall_reduce over TCP{}, {} ranks, a process each; medians of {} rounds in turn\n\n{:>12}  {:<24} {:>11}\n",
      describe_machine(),
      options.link.empty() ? ""
                           : fmt::format(", each rank's links shaped to {}", to_string(net::parse_link(options.link))),
      options.workers, options.rounds, "size(B)", "algorithm:segment", "time(us)");
  std::vector<Choice> choices;
  for (const std::size_t bytes : options.sizes) {
    std::vector<Entry> entries = entries_of(contestants.psring(), call_of(options, CollectiveKind::all_reduce, bytes));
    std::erase_if(entries, [&](const Entry& entry) { return !is_distinct(parse_psring_way(entry.way), bytes); });
    measure_in_turn(entries, options);
    const Entry& best = choose(entries, choices);
    for (const Entry& entry : entries) {
      if (entry.wrong > 0) fail(ErrorKind::check_failed, "{} at {} bytes: wrong results", entry.way, bytes);
      fmt::print("{:>12}  {:<24} {:>11.2f}{}\n", bytes, entry.way, 1e6 * entry.calls.median(),
                 &entry == &best ? "  <" : "");
    }
    std::fflush(stdout);  // the next size may take a while
    choices.push_back({bytes, parse_psring_way(best.way)});
  }
  for (const ring::Tuning::Row& row : rows_of(choices, options.workers)) tuning.rows.push_back(row);
  std::stable_sort(tuning.rows.begin(), tuning.rows.end(),
                   [](const ring::Tuning::Row& a, const ring::Tuning::Row& b) { return a.ranks < b.ranks; });
  // Other members stay: the file may be one of psring fit.
  Json all = std::filesystem::exists(options.tune) ? Json::parse(read_whole(options.tune)) : Json::object();
  all["all_reduce"] = Json::parse(tuning.to_json()).at("all_reduce");
  write_whole(options.tune, all.dump(2) + "\n");
}

}  // namespace psring::bench
