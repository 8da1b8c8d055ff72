#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <psring/bench/collectives.h>
#include <psring/bench/measure.h>
#include <psring/bench/peers/contestants.h>
#include <psring/bench/peers/psring_rank.h>
#include <psring/bench/predict/fit.h>
#include <psring/bench/report.h>
#include <psring/bench/timed_team.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/role.h>
#include <psring/common/proc/role_options.h>
#include <psring/ring/collectives.h>
#include <psring/ring/plan/tuning.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kFarewell{10};

net::DataLinks::Options patient(net::DataLinks::Options options) {
  options.silence = kSilence;
  return options;
}

/// The group that starts the calls and gathers the times, and the groups that are measured.
struct Groups {
  std::optional<ring::RingLinks> links;
  std::unique_ptr<ring::ProcessGroup> control;
  std::unique_ptr<RankLibrary> measured;
};

ring::Vector bytes_vector(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size(), {DType::u8}}; }

/// Returns the bytes of all ranks, which may be of several lengths.
std::vector<std::vector<std::byte>> gather_bytes(ring::ProcessGroup& group, std::span<const std::byte> own) {
  const auto size = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> gathered(group.size());
  ring::all_gather(group, std::span(&size, 1), std::span(gathered));
  const std::vector<std::size_t> sizes(gathered.begin(), gathered.end());
  std::size_t total = 0;
  for (const std::size_t each : sizes) total += each;
  std::vector<std::byte> all(total);
  ring::all_gather(group, ring::ConstVector(own.data(), own.size(), {DType::u8}), bytes_vector(all), sizes);
  std::vector<std::vector<std::byte>> parts;
  auto begin = all.begin();
  for (const std::size_t each : sizes) {
    const auto end = begin + static_cast<std::ptrdiff_t>(each);
    parts.emplace_back(begin, end);
    begin = end;
  }
  return parts;
}

/// The network of a Fit, such as "hosts, encrypted", "link 100 Mbit/s, 1 ms": `where` ("loopback", "hosts") unless the
/// links are shaped.
std::string describe_network(const std::string& where, const std::string& link, bool encrypt, std::size_t streams) {
  std::string text = link.empty() ? where : "link " + net::to_string(net::parse_link(link));
  if (encrypt) text += ", encrypted";
  return streams > 1 ? text + fmt::format(", {} sockets", streams) : text;
}

/// Ranks on several hosts: the workers of a `psring coordinator`, each of which runs the same benchmark, with the same
/// options. This process is one of them, and all make the same calls of this class. The link's shape, encryption and
/// sockets are those of the coordinator's job.
class HostTeam final : public TimedTeam {
 public:
  /// Returns once all workers of the job have joined and connected. Throws as a worker that joins a job does.
  /// `options`: see connect_psring.
  HostTeam(const RoleOptions& role, PsringRankOptions options) : member_(role, net::Role::worker) {
    member_.keep(groups_);
    groups_->links.emplace(member_.key(), patient(member_.link_options()), member_.bytes());
    const auto workers = of_role(member_.meet(groups_->links->listen()), net::Role::worker);
    if (workers.size() < 2)
      fail(ErrorKind::usage, "--rdzv-endpoint {}: the job has one worker; two at least exchange anything",
           role.endpoint);
    groups_->control = ring::make_job_group(member_, *groups_->links, workers, std::size_t{0}, false);
    options.max_bytes = std::max(options.max_bytes, 8 * workers.size());  // a vector has an element per rank at least
    groups_->measured = connect_psring(
        {.key = member_.key(),
         .links = patient(member_.link_options()),
         .group = ring::group_options(member_),
         .exchange = [this](std::span<const std::byte> bytes) { return gather_bytes(*groups_->control, bytes); }},
        options);
  }

  std::size_t rank() const { return groups_->control->rank(); }
  std::size_t ranks() const { return groups_->control->size(); }
  std::string network() const {
    const JobOptions& job = member_.job();
    return describe_network("hosts", job.link, job.encrypt, job.streams);
  }

  std::string name() const override { return "psring"; }
  std::vector<std::string> ways(const CollectiveCall& call) override { return groups_->measured->ways(call); }

  /// Returns the same figures at all ranks.
  Round measure(Task task) override {
    ring::ProcessGroup& control = *groups_->control;
    task.call.rank = static_cast<std::uint32_t>(control.rank());
    const PreparedCall prepared = groups_->measured->prepare(task.call, task.way);
    std::vector<Sample> samples(task.iterations);
    auto wrong = static_cast<std::int64_t>(make_calls(
        task, prepared, [&] { control.barrier().wait(); }, samples));
    std::vector<double> slowest;
    for (const Sample& sample : samples) {
      slowest.push_back(1e-9 * static_cast<double>(sample.call));
      slowest.push_back(1e-9 * static_cast<double>(sample.loop));
    }
    control.all_reduce(std::span(slowest), ring::ReduceOp::Kind::max).wait();
    control.all_reduce(std::span(&wrong, 1), ring::ReduceOp::Kind::sum).wait();
    Samples calls;
    Samples loops;
    for (std::size_t i = 0; i < slowest.size(); i += 2) {
      calls.values.push_back(slowest[i]);
      loops.values.push_back(slowest[i + 1]);
    }
    return {calls.median(), loops.median(), static_cast<std::size_t>(wrong), prepared.detail};
  }

  void in_turn(const std::function<void()>& work) override {
    for (std::size_t turn = 0; turn < ranks(); ++turn) {
      if (turn == rank()) work();
      groups_->control->barrier().wait();
    }
  }

  /// Tells the coordinator that this rank is done; the last call.
  void finish() {
    groups_->control->barrier().wait();
    net::ControlLink& link = member_.link();
    link.report(member_.report_json(""));
    link.done();
    link.flush(member_.clock().now() + kFarewell);
  }

 private:
  Membership member_;
  const std::shared_ptr<Groups> groups_ =
      std::make_shared<Groups>();  ///< shared with the member: its links close first
};

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

/// The rows of the file that stay: those for other numbers of ranks, if they were measured over the same network.
ring::Tuning rows_that_stay(const CollectivesOptions& options, const std::string& network) {
  const Fit fit = open_fit("--tune", options.tune, fit_of_host().host);
  if (fit.tuning.empty()) return {};
  if (fit.tuned_over != network) {
    out::print("{}: gets rows in place of those that were measured over {}\n", options.tune,
               fit.tuned_over.empty() ? "another network" : fit.tuned_over);
    return {};
  }
  ring::Tuning tuning = ring::Tuning::from_json(fit.tuning);
  std::erase_if(tuning.rows, [&](const ring::Tuning::Row& row) { return row.ranks == options.workers; });
  return tuning;
}

/// Measures all ways at all sizes. Returns the fastest of each size, which all ranks find alike.
std::vector<Choice> measure_sizes(const CollectivesOptions& options, TimedTeam& team, bool prints) {
  std::vector<Choice> choices;
  for (const std::size_t bytes : options.sizes) {
    std::vector<Entry> entries = entries_of(team, call_of(options, CollectiveKind::all_reduce, bytes));
    std::erase_if(entries, [&](const Entry& entry) { return !is_distinct(parse_psring_way(entry.way), bytes); });
    measure_in_turn(entries, options);
    const Entry& best = choose(entries, choices);
    for (const Entry& entry : entries) {
      if (entry.wrong > 0) fail(ErrorKind::check_failed, "{} at {} bytes: wrong results", entry.way, bytes);
      if (prints)
        out::print("{:>12}  {:<24} {:>11.2f}{}\n", bytes, entry.way, 1e6 * entry.calls.median(),
                   &entry == &best ? "  <" : "");
    }
    std::fflush(stdout);  // the next size may take a while
    choices.push_back({bytes, parse_psring_way(best.way)});
  }
  return choices;
}

void tune(const CollectivesOptions& options, TimedTeam& team, const std::string& network, bool prints) {
  ring::Tuning tuning = rows_that_stay(options, network);
  if (prints)
    out::print(
        "{}\nall_reduce over TCP, {}, {} ranks, a process each; medians of {} rounds in turn\n\n{:>12}  {:<24} "
        "{:>11}\n",
        describe_machine(), network, options.workers, options.rounds, "size(B)", "algorithm:segment", "time(us)");
  std::fflush(stdout);  // the first size may take a while
  const std::vector<Choice> choices = measure_sizes(options, team, prints);
  for (const ring::Tuning::Row& row : rows_of(choices, options.workers)) tuning.rows.push_back(row);
  std::stable_sort(tuning.rows.begin(), tuning.rows.end(),
                   [](const ring::Tuning::Row& a, const ring::Tuning::Row& b) { return a.ranks < b.ranks; });
  Fit fit = fit_of_host();
  fit.tuning = tuning.to_json();
  fit.tuned_over = network;
  team.in_turn([&] { add_to_fit("--tune", options.tune, fit); });  // ranks of one host may have one file
}

}  // namespace

void tune_all_reduce(const CollectivesOptions& options) {
  open_fit("--tune", options.tune, fit_of_host().host);  // throws before ranks are started
  if (options.endpoint.empty()) {
    Contestants contestants(options, candidates());
    tune(options, contestants.psring(), describe_network("loopback", options.link, options.encrypt, options.streams),
         true);
    return;
  }
  PsringRankOptions rank{.max_bytes = *std::max_element(options.sizes.begin(), options.sizes.end()),
                         .registered = options.registered};
  for (const PsringWay& way : candidates()) rank.ways.push_back(to_string(way));
  HostTeam team({.endpoint = options.endpoint, .key_file = options.key_file}, std::move(rank));
  CollectivesOptions among_hosts = options;
  among_hosts.workers = team.ranks();
  if (team.rank() > 0) out::print("rank {} of {}; rank 0 prints the times\n", team.rank(), team.ranks());
  tune(among_hosts, team, team.network(), team.rank() == 0);
  team.finish();
}

}  // namespace psring::bench
