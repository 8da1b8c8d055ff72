#include <numeric>
#include <utility>

#include <psring/cli/check/ranks.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/sim/simulated.h>
#include <psring/common/proc/job.h>
#include <psring/ring/link/group.h>
#include <psring/view/step/scene.h>

namespace psring::cli {
namespace {

constexpr std::chrono::milliseconds kLatestStart{1};
/// Longer than any computation of an exercise, in virtual time.
constexpr std::chrono::milliseconds kPatience{500};

std::vector<std::size_t> places(std::size_t ranks) {
  std::vector<std::size_t> all(ranks);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// A run of all ranks, and what it leaves.
class Run {
 public:
  explicit Run(const RanksOptions& options) : options_(options) {}

  RanksEnd run(const std::function<void(RankSide&)>& body) {
    net::SimulatedNetwork::Options network_options{
        .ranks = options_.ranks, .link = options_.link, .seed = options_.seed, .patience = kPatience};
    if (options_.record) network_options.listener = &recorder_;
    net::SimulatedNetwork network(network_options);
    network.run([&](std::size_t rank) { run_rank(network, rank, body); });
    if (end_.thrown.empty())
      for (const auto& [rank, waits] : deadlocked_)
        end_.deadlock = end_.deadlock.empty() ? waits : Message({"{}; {}", "{}；{}"}, end_.deadlock, waits);
    if (options_.record) end_.scene = scene();
    return std::move(end_);
  }

 private:
  void run_rank(net::SimulatedNetwork& network, std::size_t rank, const std::function<void(RankSide&)>& body) {
    const Clock& clock = network.clock();
    Events events(clock);
    MemoryLedger memory;
    if (options_.record)
      events.listen(*recorder_.joins(rank, {net::Role::worker, static_cast<std::uint32_t>(rank)}, memory, clock.now()),
                    Events::Wanted::begins);
    ring::LinkOptions link;
    link.tuning = ring::Tuning::built_in();
    link.algorithm = options_.algorithm;
    link.clock = &clock;
    auto group = ring::make_link_group(network.transport(rank), rank, options_.ranks, link);
    if (options_.record)
      group = view::make_watched_group(std::move(group), places(options_.ranks), std::move(link), recorder_);
    group->report_to(events);
    if (options_.seed > 0) clock.sleep_until(clock.now() + start_delay(rank));
    RankSide side{rank, *group, events, memory, clock, {}};
    try {
      body(side);
    } catch (const Error& error) {
      failed(side, error.kind() == ErrorKind::timeout, error.what());
    } catch (const std::exception& error) {
      failed(side, false, error.what());
    } catch (...) {
      failed(side, false, "an exception that is no std::exception");
    }
    recorder_.leaves(rank);
  }

  Nanoseconds start_delay(std::size_t rank) const {
    const CounterRng random({.seed = options_.seed, .purpose = Purpose::pace});
    return Nanoseconds(random.bits(rank) % Nanoseconds(kLatestStart).count());
  }

  /// One rank at a time runs, so the first error is the cause of the others.
  void failed(const RankSide& side, bool timeout, const char* message) {
    if (timeout) {
      deadlocked_[side.rank] = {{"rank {} waits in {}", "rank {} 等在 {}"}, side.rank, side.waits_for};
    } else if (end_.thrown.empty() && deadlocked_.empty()) {
      end_.thrown = {{"rank {}: {}", "rank {}：{}"}, side.rank, message};
    }
  }

  /// The events until the ranks told each other of a failure.
  Json events() const {
    Json kept = Json::array();
    for (const Json& event : recorder_.events()) {
      if (event.at("e") == Json("send") && event.at("name") == Json("failed")) break;
      kept.push_back(event);
    }
    return kept;
  }

  Json scene() const {
    JobOptions job;
    job.strategy = "ddp";
    job.workers = options_.ranks;
    job.steps = 1;
    Json units = Json::array();
    for (const auto& [name, elements] : options_.units)
      units.push_back({{"name", name},
                       {"elements", elements},
                       {"parameter_bytes", elements * sizeof(float)},
                       {"gradient_bytes", elements * sizeof(float)},
                       {"trained", true},
                       {"layers", Json::array()}});
    Json processes = Json::array();
    for (std::size_t rank = 0; rank < options_.ranks; ++rank)
      processes.push_back({{"name", fmt::format("worker {}", rank)},
                           {"role", "worker"},
                           {"rank", rank},
                           {"sent", recorder_.sent()[rank]}});
    const Json state = {
        {"parameters", options_.vectors_only ? "none" : "whole"}, {"gradients", "whole"}, {"optimizer", "none"}};
    const Json happened = events();
    Json json = {
        {"label", options_.label},
        {"strategy", job.strategy},
        {"job", Json::parse(to_json(job))},
        {"model", options_.label},
        {"link", net::to_string(options_.link)},
        {"flops_per_second", 1e9},
        {"server_bytes_per_second", 0},
        {"steps", 1},
        {"model_sha256", ""},
        {"ownership",
         {{"workers", job.workers}, {"servers", 0}, {"colocated", 0}, {"parts", job.workers}, {"worker", state}}},
        {"units", units},
        {"processes", processes},
        {"duration_ns", happened.size() == 0 ? Json(0) : happened.back()["t"]},
        {"events", happened},
        {"sources", tables_.sources.list()},
        {"plans", tables_.plans.list()}};
    const Message& error = end_.thrown.empty() ? end_.deadlock : end_.thrown;
    if (!error.empty()) json["error"] = error.in(*options_.record);
    return json;
  }

  const RanksOptions& options_;
  view::SceneTables tables_;
  view::SceneRecorder recorder_{places(options_.ranks), tables_};
  std::map<std::size_t, Message> deadlocked_;  ///< who waits, by rank; ranks that wait for one that has thrown, too
  RanksEnd end_;
};

}  // namespace

void RankSide::compute(Nanoseconds duration) {
  const Moment until = clock.now() + duration;
  while (clock.now() < until) group.rest(group.watch(), until);
}

void RanksEnd::require_good(std::size_t ranks, const Text& deadlock_text, const Text& thrown_text) const {
  if (!deadlock.empty()) refuse(deadlock_text, ranks, deadlock);
  if (!thrown.empty()) refuse(thrown_text, ranks, thrown);
}

RanksEnd run_ranks(const RanksOptions& options, const std::function<void(RankSide&)>& body) {
  return Run(options).run(body);
}

void CountedLink::send(std::size_t to, std::span<const float> values) {
  require_other("send to", to);
  sent_bytes_ += values.size_bytes();
  sizes_[{side_.rank, to}].push_back(values.size());
  side_.group.send(values, to).wait();
}

void CountedLink::recv(std::size_t from, std::span<float> values, const std::string& after) {
  require_other("recv from", from);
  side_.waits_for = fmt::format("recv from {} {}{}", noun_, from, after);
  std::deque<std::size_t>& sizes = sizes_[{from, side_.rank}];
  try {
    side_.group.recv(values, from).wait();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::timeout || sizes.empty()) throw;
    fail(ErrorKind::usage, "recv from {} {} asks for {} values, but the message has {}", noun_, from, values.size(),
         sizes.front());
  }
  sizes.pop_front();
  side_.waits_for.clear();
}

void CountedLink::require_other(const char* call, std::size_t other) const {
  const std::size_t size = side_.group.size();
  if (other >= size || other == side_.rank)
    fail(ErrorKind::usage, "{} {} {}: the other {}s of {} are 0 to {} without {}", call, noun_, other, noun_, size,
         size - 1, side_.rank);
}

}  // namespace psring::cli
