#include <map>
#include <numeric>
#include <utility>

#include <psring/cli/check/ranks.h>
#include <psring/common/base/error.h>
#include <psring/common/base/rng.h>
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
  Run(const RanksOptions& options, Language language) : options_(options), language_(language) {}

  RanksEnd run(const std::function<void(RankSide&)>& body) {
    net::SimulatedNetwork::Options network_options{
        .ranks = options_.ranks, .link = options_.link, .seed = options_.seed, .patience = kPatience};
    if (options_.record) network_options.listener = &recorder_;
    net::SimulatedNetwork network(network_options);
    network.run([&](std::size_t rank) { run_rank(network, rank, body); });
    for (const auto& [rank, waits] : deadlocked_)
      if (end_.thrown.empty()) end_.deadlock += (end_.deadlock.empty() ? "" : say(language_, Text{"; ", "；"})) + waits;
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
      deadlocked_[side.rank] =
          say(language_, Text{"rank {} waits in {}", "rank {} 等在 {}"}, side.rank, side.waits_for);
    } else if (end_.thrown.empty() && deadlocked_.empty()) {
      end_.thrown = say(language_, Text{"rank {}: {}", "rank {}：{}"}, side.rank, message);
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

  Json ownership() const {
    const char* const state = options_.vectors_only ? "none" : "whole";
    return {{"workers", options_.ranks},
            {"servers", 0},
            {"colocated", 0},
            {"parts", options_.ranks},
            {"worker", {{"parameters", state}, {"gradients", "whole"}, {"optimizer", "none"}}}};
  }

  Json scene() const {
    JobOptions job;
    job.strategy = "ddp";
    job.workers = options_.ranks;
    job.steps = 1;
    Json units = Json::array();
    for (const UnitLayout& unit : options_.units)
      units.push_back({{"name", unit.name},
                       {"elements", unit.elements},
                       {"parameter_bytes", unit.elements * sizeof(float)},
                       {"gradient_bytes", unit.elements * sizeof(float)},
                       {"trained", true},
                       {"layers", Json::array()}});
    Json processes = Json::array();
    for (std::size_t rank = 0; rank < options_.ranks; ++rank)
      processes.push_back({{"name", fmt::format("worker {}", rank)},
                           {"role", "worker"},
                           {"rank", rank},
                           {"sent", recorder_.sent()[rank]}});
    Json happened = events();
    Json json = {{"label", options_.label},
                 {"strategy", job.strategy},
                 {"job", Json::parse(to_json(job))},
                 {"model", options_.label},
                 {"link", net::to_string(options_.link)},
                 {"flops_per_second", 1e9},
                 {"server_bytes_per_second", 0},
                 {"steps", 1},
                 {"model_sha256", ""}};
    if (!end_.good()) json["error"] = end_.thrown + end_.deadlock;
    json["ownership"] = ownership();
    json["units"] = std::move(units);
    json["processes"] = std::move(processes);
    json["duration_ns"] = happened.size() == 0 ? Json(0) : happened.back()["t"];
    json["events"] = std::move(happened);
    json["sources"] = tables_.sources.list();
    json["plans"] = tables_.plans.list();
    return json;
  }

  const RanksOptions& options_;
  const Language language_;
  view::SceneTables tables_;
  view::SceneRecorder recorder_{places(options_.ranks), tables_};
  std::map<std::size_t, std::string> deadlocked_;  ///< who waits, by rank; ranks that wait for one that has thrown, too
  RanksEnd end_;
};

}  // namespace

void RankSide::compute(Nanoseconds duration) {
  const Moment until = clock.now() + duration;
  while (clock.now() < until) group.rest(group.watch(), until);
}

RanksEnd run_ranks(const RanksOptions& options, Language language, const std::function<void(RankSide&)>& body) {
  return Run(options, language).run(body);
}

}  // namespace psring::cli
