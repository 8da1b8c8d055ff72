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

/// Trouble that a job makes for itself, to be seen and survived: KIND:ROLE:RANK[=VALUE][@WHEN].
///
///   slow:worker:1=4x          computes so many times slower
///   jitter:worker:*=20%       each step's computing takes up to so much more or less, as the seed draws it
///   link:worker:2=10mbit      has this network card, where --link gives the others theirs; DELAY is theirs, too
///   drop:worker:1=1%          so many of the frames that it sends are lost; duplicate: arrive twice; reorder: are
///                             overtaken by the next one; corrupt: have one bit changed
///   kill:server:0@step=20     ends by SIGKILL: a worker as it begins the step, a server once it has made as many
///   stop:worker:1@time=2s     updates; or so long after it has joined the job. Stops by SIGSTOP.
///                             Of coordinator:0, too, by time
struct Fault {
  enum class Kind : std::uint8_t { slow, jitter, link, drop, duplicate, reorder, corrupt, kill, stop };
  Kind kind = Kind::slow;
  net::Role role = net::Role::worker;
  std::optional<std::uint32_t> rank;  ///< none: all
  double factor = 1;                  ///< of slow: times; of jitter and what happens to frames: the share
  double bits_per_second = 0;         ///< of link
  std::optional<std::uint64_t> step;  ///< of kill and stop: this,
  Nanoseconds after{0};               ///< or so long after the role has joined

  bool hits_frames() const { return kind >= Kind::drop && kind <= Kind::corrupt; }
  bool hits(net::Peer peer) const { return role == peer.role && rank.value_or(peer.rank) == peer.rank; }
};

/// Those of a text, with blanks between; empty for "". Throws usage, naming --fault.
std::vector<Fault> parse_faults(const std::string& text);

/// Those of them that pass, as a text of the same grammar.
std::string only_faults(const std::string& text, const std::function<bool(const Fault&)>& passes);

/// The same without kills and stops, which hit a process that a job began with, not the one that takes its place.
std::string without_ends(const std::string& text);

/// What happens to the frames of a process; none where the job has no such fault, for any process.
std::optional<net::FrameFaults> frame_faults(const std::string& text, std::uint64_t seed, net::Peer self);

/// Those that hit a process.
std::vector<Fault> faults_of(const std::string& text, net::Peer peer);

/// Kills and stops, of one process.
class FaultTrigger {
 public:
  FaultTrigger(const std::string& faults, net::Peer self);

  /// From now on, those by time.
  void arm() const;
  /// Those by step that are due at this one.
  void at(std::uint64_t step) const {
    if (!faults_.empty()) strike(step);
  }

 private:
  void strike(std::uint64_t step) const;

  std::vector<Fault> faults_;
};

}  // namespace psring
