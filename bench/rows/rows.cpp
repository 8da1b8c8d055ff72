#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>

#include <fmt/core.h>

#include <psring/bench/peers/processes.h>
#include <psring/bench/peers/row_peer.h>
#include <psring/bench/report.h>
#include <psring/bench/rows/row_way.h>
#include <psring/bench/rows/rows.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/device/pages.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>

namespace psring::bench {
namespace {

/// The memory of a process, in bytes.
std::size_t resident_bytes(const std::string& pid) {
  const std::string pages = read_stream("/proc/" + pid + "/statm");  // all, resident, and more
  return std::stoull(pages.substr(pages.find(' '))) * page_bytes();
}

/// The memory that a server books for the table once every key was trained.
std::size_t predicted_bytes(const RowCase& which, bool answers) {
  const auto rule = optim::make_row_rule(Spec::parse("--table-optimizer", "rowwise-adagrad"));
  const TableLayout table = row_layout(which).tables.front();
  std::array<std::size_t, optim::RowIndex::kMaps> keys{};
  for (std::size_t row = 0; row < which.rows; ++row) ++keys[optim::RowIndex::map_of(optim::mix64(row + 1))];
  return optim::TableRows::record_sizes(which.width, *rule).booked_bytes(which.rows) +
         optim::RowIndex::booked_bytes(keys) + optim::TableRows::scratch_bytes(which.width) +
         optim::key_list_bytes(table, 1, false, true) + (answers ? table.most_keys * table.row_bytes() : 0);
}

/// A way, with its times.
struct Contestant {
  std::string name;
  std::function<RowRun(Range, bool)> run;
  std::string server = {};  ///< process of psring's server
  bool loads = true;        ///< false: another contestant has loaded the same records
  Samples pull = {};        ///< the median batch of each round
  Samples push = {};
  Samples both = {};
  Samples cpu = {};
  double least_s = 0;  ///< of all batches
  std::vector<RowTimes> loading = {};
  std::size_t grown_bytes = 0;  ///< the server's memory after loading, less that before
};

class Rows {
 public:
  Rows(const RowsOptions& options, std::size_t width)
      : options_(options),
        which_{options.rows, width, options.lookups, options.zipf},
        batches_(which_),
        reference_(make_reference_rows(which_)),
        floors_(which_),
        floor_(floors_.way(true)),
        array_(floors_.way(false)) {
    if (options.shm) add_psring(Kind::shm);
    if (options.tcp) add_psring(Kind::tcp);
    for (const std::string& peer : options.peers) {
      peers_.push_back(std::make_unique<RowPeer>(peer, which_, servers_.cluster()));
      contestants_.push_back(
          {peer, [own = peers_.back().get()](Range range, bool check) { return own->run(range, check); }});
    }
    add_local("floor", *floor_);
    add_local("array", *array_);
    contestants_.back().loads = false;
  }

  Json measure() {
    load();
    compare(options_.warm_up, true);
    for (std::size_t round = 0; round < options_.rounds; ++round) {
      for (Contestant& contestant : contestants_)
        add_round(contestant, contestant.run(next(options_.iterations), false));
      reference(options_.iterations, false);
    }
    if (options_.check) compare(options_.warm_up, false);
    Json rows = Json::array();
    for (const Contestant& contestant : contestants_) rows.push_back(print(contestant));
    for (const Contestant& contestant : contestants_) print_growth(contestant, rows);
    return rows;
  }

 private:
  void add_local(const std::string& name, RowWay& way) {
    contestants_.push_back(
        {name, [this, &way](Range range, bool check) { return run_batches(way, batches_, range, check); }});
  }
  void add_psring(Kind kind) {
    const std::string endpoint = servers_.start({.kind = kind, .elements = {1}});
    const std::string process = endpoint.substr(endpoint.rfind(' ') + 1);
    ways_.push_back(connect_psring_rows(kind, endpoint, servers_.key_file(), std::stoi(process), which_));
    add_local(to_string(kind), *ways_.back());
    contestants_.back().server = process;
  }

  Range next(std::size_t batches) const { return {at_, at_ + batches}; }
  /// Makes the same batches with the plain loop, after all contestants have made them; returns the rows' checksum.
  std::uint64_t reference(std::size_t batches, bool check) {
    const RowRun run = run_batches(*reference_, batches_, next(batches), check);
    at_ += batches;
    return run.checksum;
  }

  void load() {
    for (Contestant& contestant : contestants_) {
      if (!contestant.loads) continue;
      const std::size_t before = contestant.server.empty() ? 0 : resident_bytes(contestant.server);
      contestant.loading = contestant.run(next(batches_.loading()), false).times;
      if (!contestant.server.empty()) contestant.grown_bytes = resident_bytes(contestant.server) - before;
    }
    reference(batches_.loading(), false);
  }

  /// Checks the rows of some batches. `floors`: those of the floors as well, which share records, so that both update
  /// them.
  void compare(std::size_t batches, bool floors) {
    std::vector<std::pair<std::string, std::uint64_t>> found;
    for (Contestant& contestant : contestants_)
      if (contestant.name != "array" && (floors || contestant.name != "floor"))
        found.emplace_back(contestant.name, contestant.run(next(batches), true).checksum);
    const std::uint64_t expected = reference(batches, true);
    for (const auto& [name, checksum] : found)
      if (checksum != expected) fail(ErrorKind::check_failed, "{}, width {}: rows are wrong", name, which_.width);
  }

  static void add_round(Contestant& contestant, const RowRun& run) {
    Samples pull;
    Samples push;
    Samples both;
    Samples cpu;
    for (const RowTimes& times : run.times) {
      pull.values.push_back(times.pull_s);
      push.values.push_back(times.push_s);
      both.values.push_back(times.pull_s + times.push_s);
      cpu.values.push_back(times.cpu_s);
    }
    contestant.pull.values.push_back(pull.median());
    contestant.push.values.push_back(push.median());
    contestant.both.values.push_back(both.median());
    contestant.cpu.values.push_back(cpu.median());
    contestant.least_s = std::min(contestant.both.values.size() > 1 ? contestant.least_s : both.least(), both.least());
  }

  const Contestant& find(const std::string& name) const {
    return *std::ranges::find(contestants_, name, &Contestant::name);
  }
  static bool is_psring(const Contestant& contestant) { return !contestant.server.empty(); }

  Json print(const Contestant& contestant) const {
    const double keys = batches_.mean_keys();
    Json row{{"width", which_.width},
             {"way", contestant.name},
             {"keys", keys},
             {"pull_s", contestant.pull.values},
             {"push_s", contestant.push.values},
             {"both_s", contestant.both.values},
             {"least_s", contestant.least_s},
             {"cpu_s", contestant.cpu.values}};
    std::string ratios;
    if (is_psring(contestant)) {
      const auto add = [&](const std::string& name, double ratio) {
        row[name] = ratio;
        ratios += fmt::format(" {:>8.2f}", ratio);
      };
      add("of_floor", contestant.both.median_ratio(find("floor").both));
      add("cpu_of_floor", contestant.cpu.median_ratio(find("floor").cpu));
      for (const std::string& peer : options_.peers) {
        add("of_" + peer, find(peer).both.median_ratio(contestant.both));
        add("cpu_of_" + peer, find(peer).cpu.median_ratio(contestant.cpu));
      }
    }
    out::print("{:>5}  {:<8} {:>9.1f} {:>9.1f} {:>10.1f} {:>7.0f}% {:>9.1f} {:>9.1f} {:>9.2f}{}\n", which_.width,
               contestant.name, 1e6 * contestant.pull.median(), 1e6 * contestant.push.median(),
               1e6 * contestant.both.median(), 100 * contestant.both.spread(), 1e6 * contestant.least_s,
               1e6 * contestant.cpu.median(), 1e-6 * keys / contestant.both.median(), ratios);
    return row;
  }

  void print_growth(const Contestant& contestant, Json& rows) const {
    if (!is_psring(contestant)) return;
    const auto slowest = [&](double RowTimes::*of) {
      std::vector<double> times;
      for (const RowTimes& each : contestant.loading) times.push_back(each.*of);
      std::ranges::sort(times);
      return std::array<double, 2>{times[(times.size() - 1) * 999 / 1000], times.back()};
    };
    const auto pull = slowest(&RowTimes::pull_s);
    const auto push = slowest(&RowTimes::push_s);
    const std::size_t predicted = predicted_bytes(which_, contestant.name != "shm");
    out::print(
        "{:>5}  {:<8} filled by {} batches of new keys: pulls p99.9 {:.2f} ms, longest {:.2f} ms; pushes {:.2f}, "
        "{:.2f} "
        "ms; memory {:.1f} MB, predicted {:.1f} MB\n",
        which_.width, contestant.name, contestant.loading.size(), 1e3 * pull[0], 1e3 * pull[1], 1e3 * push[0],
        1e3 * push[1], 1e-6 * static_cast<double>(contestant.grown_bytes), 1e-6 * static_cast<double>(predicted));
    rows.push_back({{"width", which_.width},
                    {"filled", contestant.name},
                    {"batches", contestant.loading.size()},
                    {"pull_p999_s", pull[0]},
                    {"pull_longest_s", pull[1]},
                    {"push_p999_s", push[0]},
                    {"push_longest_s", push[1]},
                    {"resident_bytes", contestant.grown_bytes},
                    {"predicted_bytes", predicted}});
  }

  const RowsOptions& options_;
  const RowCase which_;
  DrawnBatches batches_;
  const std::unique_ptr<RowWay> reference_;
  RowFloors floors_;
  const std::unique_ptr<RowWay> floor_;
  const std::unique_ptr<RowWay> array_;
  ServerProcesses servers_;
  std::vector<std::unique_ptr<RowWay>> ways_;
  std::vector<std::unique_ptr<RowPeer>> peers_;
  std::vector<Contestant> contestants_;
  std::size_t at_ = 0;  ///< the next batch
};

}  // namespace

void bench_rows(const RowsOptions& options) {
  for (const std::string& peer : options.peers) RowPeer::require(peer);
  const std::string machine = describe_machine();
  out::print(
      "{}\n1 server, 1 worker, 2 processes; {} rows, rowwise-adagrad, the different keys of {} lookups (Zipf {}); "
      "medians of {} rounds in turn\n",
      machine, options.rows, options.lookups, options.zipf, options.rounds);
  out::print(
      "floor: random records found in one hash map, array: by number; two threads, no protocol. cpu: processor time "
      "of all processes for a batch. /floor: our time over the floor's{}\n\n",
      options.peers.empty() ? "" : "; peer/: the peer's time over ours");
  out::print("{:>5}  {:<8} {:>9} {:>9} {:>10} {:>8} {:>9} {:>9} {:>9} {:>8} {:>8}", "width", "way", "pull us",
             "push us", "both us", "spread", "least us", "cpu us", "M rows/s", "/floor", "cpu");
  for (const std::string& peer : options.peers) out::print(" {:>8} {:>8}", peer + "/", "cpu");
  out::print("\n");
  Json report{{"machine", machine}, {"rounds", options.rounds}, {"rows", Json::array()}};
  for (const std::size_t width : options.widths) {
    for (const auto& row : Rows(options, width).measure()) report["rows"].push_back(row);
    std::fflush(stdout);  // the next width may take a while
  }
  if (!options.json.empty()) write_json_file(options.json, report.dump(1));
}

}  // namespace psring::bench
