#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/server/clocks.h>

namespace psring::server {

void Clocks::open(const std::vector<bool>& trained) {
  pieces_.resize(trained.size());
  if (!consistency_.each_push_updates) return;
  const Progress first{.clock = options_.first_version, .sent = options_.first_version, .last = {}};
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece)
    if (trained[piece]) pieces_[piece].workers.assign(options_.workers, first);
}

std::uint64_t Clocks::due(std::size_t piece, std::size_t worker, std::uint64_t version) const {
  return each_push_updates(piece) ? pieces_[piece].workers[worker].clock : version;
}

std::uint64_t Clocks::slowest(std::size_t piece, std::uint64_t version) const {
  if (!each_push_updates(piece)) return version;
  const std::vector<Progress>& workers = pieces_[piece].workers;
  std::uint64_t least = kFinalVersion;
  for (std::size_t worker = 0; worker < workers.size(); ++worker)
    if (!left_[worker]) least = std::min(least, workers[worker].clock);
  return least;
}

void Clocks::count_push(std::size_t piece, std::size_t worker, std::uint64_t version) {
  Progress& progress = pieces_[piece].workers[worker];
  progress.last = {version - std::min(progress.sent, version), progress.clock - slowest(piece, version)};
  check(!consistency_.bound || progress.last.lag <= *consistency_.bound, "worker {} is {} steps ahead", worker,
        progress.last.lag);
  if (std::none_of(left_.begin(), left_.end(), [](bool left) { return left; })) records_[worker].add(progress.last);
  ++progress.clock;
  pieces_[piece].push_being_applied = worker;
}

Staleness Clocks::last(std::size_t piece, std::size_t worker) const {
  return each_push_updates(piece) ? pieces_[piece].workers[worker].last : Staleness{};
}

void Clocks::set_sent(std::size_t piece, std::size_t worker, std::uint64_t version) {
  if (each_push_updates(piece)) pieces_[piece].workers[worker].sent = version;
}

}  // namespace psring::server
