#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include <psring/cli/train/tensor_ranks.h>
#include <psring/common/net/key.h>
#include <psring/common/net/unix_socket.h>
#include <psring/common/proc/guarded_folder.h>
#include <psring/ring/shm/group.h>
#include <psring/ring/shm/rendezvous.h>

namespace psring::cli {
namespace {

constexpr Nanoseconds kMeeting = std::chrono::seconds(60);  ///< until all ranks share memory
constexpr Nanoseconds kStopped = std::chrono::seconds(10);  ///< a rank that is stopped for longer is lost
constexpr Nanoseconds kTooEarly = std::chrono::seconds(5);  ///< a rank that has ended is not waited for any longer
constexpr Nanoseconds kSeen = std::chrono::seconds(1);      ///< from a rank's end until it is certainly seen
constexpr Nanoseconds kLook = std::chrono::seconds(1);      ///< between two looks for ranks that are stopped
constexpr Nanoseconds kEnding = std::chrono::seconds(30);   ///< from this rank's end to the others' ends

std::string name_of(std::size_t rank) { return fmt::format("tensor-rank-{}", rank); }

/// The ranks, as they prove to each other who they are.
std::vector<net::Peer> peers_of(std::size_t ranks) {
  std::vector<net::Peer> peers;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) peers.push_back({net::Role::worker, rank});
  return peers;
}

}  // namespace

TensorRanks::TensorRanks(std::size_t ranks, const Place& place, std::size_t bytes,
                         const std::vector<std::string>& words) {
  const HeldSignals held;                 // while the folder is there
  std::optional<TemporaryFolder> folder;  // of the key and the logs; the processes keep their logs open
  std::string key_file = place.key_file;
  if (place.rank == 0) {
    folder.emplace("psring-ranks");
    key_file = (folder->path() / "ranks.key").string();
    net::JobKey::generate().save(key_file);
  }
  const net::JobKey key = net::JobKey::load(key_file);
  const std::string name = fmt::format("psring-ranks-{:016x}", key.job_id());
  Fd listener;
  ring::GroupOptions options;
  if (place.rank == 0) {
    listener = net::listen_unix(name);
    start_others(ranks, folder->path(), words, key_file);
    options.check = [this] { check_others(); };
  }
  const std::vector<net::Peer> peers = peers_of(ranks);
  const auto meeting = [&] {
    held.check();
    if (options.check) options.check();
  };
  try {
    ring::ShmWorld world = ring::meet_in_shared_memory(key, {peers.at(place.rank), 0}, peers, std::move(listener), name,
                                                       std::make_shared<Arena>(ring::kShmArenaBytes + bytes),
                                                       Deadline(clock_.now() + kMeeting, meeting));
    group_ = ring::make_shm_group(world, std::move(options));
  } catch (const Error& error) {
    throw cause_of(error);
  }
}

void TensorRanks::start_others(std::size_t ranks, const std::filesystem::path& folder, std::vector<std::string> words,
                               const std::string& key_file) {
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  words.insert(words.end(), {"--tensor-key", key_file, "--tensor-rank", ""});
  others_ = std::make_unique<LocalCluster>(folder, clock_);
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    words.back() = std::to_string(rank);
    others_->start(name_of(rank), words);
  }
}

TensorRanks::~TensorRanks() = default;

/// Returns the error of a rank's end, or of the end of one that a signal ended at the same time: the others fail
/// because of it.
Error TensorRanks::error_of(ProcessExit exit) {
  const Moment deadline = clock_.now() + kSeen;
  while (exit.signal == 0) {
    std::optional<ProcessExit> other = others_->next_exit(deadline);
    if (!other) break;
    if (other->signal != 0) exit = std::move(*other);
  }
  const std::string rank = exit.name.substr(exit.name.rfind('-') + 1);
  const std::string message = message_of(exit);
  if (exit.signal == 0 && exit.status != 0 && !message.empty())
    return {kind_of_status(exit.status), fmt::format("tensor rank {}: {}", rank, message)};
  std::string how = exit.signal != 0 ? fmt::format("was ended by signal {} ({})", exit.signal, ::strsignal(exit.signal))
                                     : fmt::format("exited with status {}", exit.status);
  if (exit.signal != 0 && !message.empty()) how += ": " + message;
  return {ErrorKind::peer_lost, fmt::format("tensor rank {} (process {}) {}", rank, exit.pid, how)};
}

void TensorRanks::lose(const ProcessExit& exit) {
  loss_ = error_of(exit);
  throw *loss_;
}

void TensorRanks::check_others() {
  if (loss_) throw *loss_;  // the ranks that fail because of it are no cause
  others_->kill_stopped(kStopped);
  if (const std::optional<ProcessExit> exit = others_->next_exit(clock_.now())) {
    if (exit->signal != 0 || exit->status != 0) lose(*exit);
    if (!done_) done_at_ = clock_.now();
    done_ = exit;  // it may have done all of its part; what this rank waits for is then about to be seen
  }
  if (done_ && clock_.now() - done_at_ > kTooEarly) lose(*done_);
}

/// Returns the loss that an error of this rank follows from, without the operation in which this rank noticed it; the
/// error itself if there is none.
Error TensorRanks::cause_of(const Error& error) {
  const bool may_follow = error.kind() == ErrorKind::peer_lost || error.kind() == ErrorKind::timeout;
  if (loss_ || others_ == nullptr || !may_follow) return loss_.value_or(error);
  const Moment deadline = clock_.now() + kSeen;
  while (const std::optional<ProcessExit> exit = others_->next_exit(deadline)) {
    if (exit->signal != 0 || exit->status != 0) return error_of(*exit);
  }
  return error;
}

void TensorRanks::await_others() {
  const Moment deadline = clock_.now() + kEnding;
  while (others_->running() > 0) {
    others_->kill_stopped(kStopped);
    const std::optional<ProcessExit> exit = others_->next_exit(std::min(deadline, clock_.now() + kLook));
    if (!exit && clock_.now() < deadline) continue;
    if (!exit)
      fail(ErrorKind::timeout, "{} tensor ranks have not ended after {:.0f} s", others_->running(), seconds(kEnding));
    if (exit->signal != 0 || exit->status != 0) lose(*exit);
  }
}

void TensorRanks::run(const std::function<void()>& body) {
  try {
    body();
    if (others_ != nullptr) await_others();
  } catch (const Error& error) {
    throw cause_of(error);
  }
}

}  // namespace psring::cli
