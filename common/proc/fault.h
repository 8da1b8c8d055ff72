#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/net/frame.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/sim/faulty.h>

namespace psring {

/// A fault that a job injects into itself, to show how the job survives it: KIND:ROLE:RANK[=VALUE][@WHEN].
///
///   slow:worker:1=4x          computes 4 times slower
///   jitter:worker:*=20%       each step's compute time changes by up to 20 % either way, as the seed draws it
///   link:worker:2=10mbit      has this network card, while --link gives the others theirs; the delay is that of --link
///   drop:worker:1=1%          1 % of the frames that the role sends are lost; duplicate: these frames arrive twice;
///                             reorder: the next frame overtakes them; corrupt: one bit of them flips
///   kill:server:0@step=20     SIGKILL: a worker gets it as it begins the step, a server once it has made that many
///   stop:worker:1@time=2s     updates; or either role at this time after it has joined the job. stop: SIGSTOP instead.
///                             For coordinator:0, too, but only by time
struct Fault {
  enum class Kind : std::uint8_t { slow, jitter, link, drop, duplicate, reorder, corrupt, kill, stop };
  Kind kind = Kind::slow;
  net::Role role = net::Role::worker;
  std::optional<std::uint32_t> rank;  ///< none: all ranks
  double factor = 1;                  ///< slow: the factor; jitter and faults of frames: the share
  double bits_per_second = 0;         ///< link: the rate
  std::optional<std::uint64_t> step;  ///< kill and stop: the step; none: by time
  Nanoseconds after{0};               ///< kill and stop by time: the time since the role has joined

  bool hits_frames() const { return kind >= Kind::drop && kind <= Kind::corrupt; }
  bool hits(net::Peer peer) const { return role == peer.role && rank.value_or(peer.rank) == peer.rank; }
};

/// Parses faults that are separated by blanks; "" has none. Throws usage, naming --fault.
std::vector<Fault> parse_faults(const std::string& text);

/// Keeps the faults for which `passes` returns true, as a text of the same grammar.
std::string only_faults(const std::string& text, const std::function<bool(const Fault&)>& passes);

/// Removes kills and stops from the text: they hit a process of the first epoch, not the process that replaces it.
std::string without_ends(const std::string& text);

/// The faults of a process's frames; nothing if the job has no fault of frames for any process.
std::optional<net::FrameFaults> frame_faults(const std::string& text, std::uint64_t seed, net::Peer self);

/// The faults that hit a process.
std::vector<Fault> faults_of(const std::string& text, net::Peer peer);

/// Carries out the kills and stops of one process.
class FaultTrigger {
 public:
  FaultTrigger(const std::string& faults, net::Peer self);

  /// Starts the timers of kills and stops by time.
  void arm() const;
  /// Carries out the kills and stops that are due at this step.
  void at(std::uint64_t step) const {
    if (!faults_.empty()) strike(step);
  }

 private:
  void strike(std::uint64_t step) const;

  std::vector<Fault> faults_;
};

}  // namespace psring
