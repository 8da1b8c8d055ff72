#include <cstdio>
#include <optional>

#include <psring/bench/collectives.h>
#include <psring/bench/measure.h>
#include <psring/bench/peers/contestants.h>
#include <psring/bench/report.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/ring/element.h>

namespace psring::bench {
namespace {

class Collectives {
 public:
  explicit Collectives(const CollectivesOptions& options)
      : options_(options), contestants_(options, {{options.algorithm, options.segment_bytes}}) {}

  void run() {
    const std::string machine = describe_machine();
    out::print("{}\n{} ranks, a process each; medians of {} rounds in turn; transport {}{}{}\n", machine,
               options_.workers, options_.rounds, options_.transport,
               options_.registered ? "" : "; vectors outside of the group's memory",
               options_.encrypt ? "; encrypted" : "");
    out::print(
        "time: the slowest rank's; loop: with the rewrite before and a read after; ratio: a peer's time over psring's\n"
        "limit: the ranks read and write as many bytes in their own vectors as the call makes them touch at least\n");
    Json report{{"machine", machine},
                {"ranks", options_.workers},
                {"rounds", options_.rounds},
                {"transport", options_.transport},
                {"registered", options_.registered},
                {"encrypt", options_.encrypt},
                {"rows", Json::array()}};
    for (const CollectiveKind kind : options_.kinds) {
      out::print("\n{}\n{:>12} {:>12} {:>5} {:>8} {:>5}  {:<9} {:>11} {:>7} {:>8} {:>8} {:>7} {:>11} {:>7} {:>7}  {}\n",
                 to_string(kind), "size(B)", "count", "type", "redop", "root", "by", "time(us)", "spread", "algbw",
                 "busbw", "#wrong", "loop(us)", "ratio", "loop", "how");
      std::fflush(stdout);
      std::optional<std::size_t> before;
      for (const std::size_t bytes : options_.sizes) {
        const CollectiveCall call = call_of(options_, kind, bytes);
        if (before == call.count) continue;  // rounding up to one element per rank can give the same count again
        before = call.count;
        measure(call, report["rows"]);
      }
    }
    if (!options_.json.empty()) write_json_file(options_.json, report.dump(1));
    if (wrong_ > 0) fail(ErrorKind::check_failed, "{} elements of results are wrong", wrong_);
  }

 private:
  void measure(const CollectiveCall& call, Json& rows) {
    std::vector<Entry> entries;
    for (Team& team : contestants_.all())
      for (Entry& entry : entries_of(team, call)) entries.push_back(std::move(entry));
    entries.push_back({&contestants_.psring(), {.kind = Task::Kind::limit, .call = call}, ""});
    measure_in_turn(entries, options_);
    const Entry* reference = fastest(entries, contestants_.psring());
    for (const Team& team : contestants_.all())
      if (const Entry* best = fastest(entries, team)) rows.push_back(print(*best, reference, call));
    for (const Entry& entry : entries) wrong_ += entry.wrong;
    rows.push_back(print(entries.back(), reference, call));
    std::fflush(stdout);  // the next size may take a while
  }

  Json print(const Entry& entry, const Entry* reference, const CollectiveCall& call) {
    const bool limit = entry.task.kind == Task::Kind::limit;
    const bool peer = !limit && entry.team != reference->team;
    const double time = entry.calls.median();
    const double algbw = 1e-9 * static_cast<double>(call.bytes()) / time;
    const std::size_t count = has_parts(call.kind) ? call.part() : call.count;
    const std::string redop = reduces(call.kind) ? ring::ReduceOp(call.redop).name() : "none";
    const std::string root = has_root(call.kind) ? std::to_string(call.root) : "-1";
    const std::string by = limit ? "limit" : entry.team->name();
    std::string detail = entry.detail.empty() ? entry.way : entry.detail;
    if (const std::size_t colon = detail.find(": "); colon != std::string::npos) detail.erase(0, colon + 2);
    out::print("{:>12} {:>12} {:>5} {:>8} {:>5}  {:<9} {:>11.2f} {:>6.0f}%", call.bytes(), count,
               ring::to_string(ring::ElementType{call.dtype}), redop, root, by, 1e6 * time, 100 * entry.calls.spread());
    if (!limit) {
      out::print(" {:>8.2f} {:>8.2f} {:>7} {:>11.2f}", algbw, algbw * call.bus_factor(), entry.wrong,
                 1e6 * entry.loops.median());
      if (peer)
        out::print(" {:>7.2f} {:>7.2f}  {}", entry.calls.median_ratio(reference->calls),
                   entry.loops.median_ratio(reference->loops), detail);
      else
        out::print(" {:>7} {:>7}  {}", "", "", detail);
    }
    out::print("\n");

    Json row{{"collective", to_string(call.kind)},
             {"size", call.bytes()},
             {"count", count},
             {"type", ring::to_string(ring::ElementType{call.dtype})},
             {"redop", redop},
             {"root", has_root(call.kind) ? static_cast<std::int64_t>(call.root) : -1},
             {"by", by},
             {"iterations", entry.task.iterations},
             {"time_s", entry.calls.values}};
    if (limit) return row;
    row["how"] = detail;
    row["loop_s"] = entry.loops.values;
    row["algbw_gbs"] = algbw;
    row["busbw_gbs"] = algbw * call.bus_factor();
    row["wrong"] = entry.wrong;
    if (peer) row["ratio"] = entry.calls.median_ratio(reference->calls);
    if (peer) row["loop_ratio"] = entry.loops.median_ratio(reference->loops);
    return row;
  }

  const CollectivesOptions options_;
  Contestants contestants_;
  std::size_t wrong_ = 0;
};

}  // namespace

void bench_collectives(const CollectivesOptions& options) { Collectives(options).run(); }

}  // namespace psring::bench
