#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/ring/group_options.h>
#include <psring/ring/hier/hierarchy.h>
#include <psring/ring/inner_group.h>
#include <psring/ring/request.h>

namespace psring::ring {

/// The groups of which a hierarchical group is composed. In each inner group, stages run in the order of the calls at
/// all of its ranks. So the stages down and up need groups of their own: the network decides how many stages run down
/// before the first one runs up.
struct InnerGroups {
  std::unique_ptr<InnerGroup> down;
  std::unique_ptr<InnerGroup> up;
  std::unique_ptr<InnerGroup> links;  ///< all ranks, by messages
  std::vector<std::unique_ptr<InnerGroup>> columns;
};

/// The inner groups of the hierarchical group number `id`, without communication. `host`: any group in shared memory
/// with this host's ranks, where they have the ranks `places`; `links`: the messages between the group's ranks, whose
/// number among the groups of messages is `links_id`.
InnerGroups make_inner_groups(const Hierarchy& hierarchy, std::uint32_t id, InnerGroup& host,
                              const std::vector<std::size_t>& places, std::unique_ptr<InnerGroup> links,
                              std::uint32_t links_id);

class HierProgress;

/// A call on a hierarchical group in flight, made of calls on the inner groups.
class HierTask : public Operation {
 public:
  HierTask(HierProgress& progress, const Announced& said) : progress_(progress), said_(said) {}
  bool advance() final;
  void wait() final;

  /// The operation, as ranks compare it and errors name it.
  const Announced& said() const { return said_; }
  bool finished() const { return finished_; }
  /// Does it wait for messages between hosts, rather than for shared memory?
  virtual bool waits_for_links() const = 0;

 protected:
  bool finish() { return finished_ = true; }

 private:
  HierProgress& progress_;
  const Announced said_;
  bool finished_ = false;
};

/// A collective: its stages down, between and up, one after another.
class HierCollective final : public HierTask {
 public:
  HierCollective(HierProgress& progress, const Announced& said, const Request& request, Hierarchy::Stages stages);

  void go_down(InnerGroup& group);
  bool is_down() { return down_.done(); }
  void go_between(const std::vector<std::unique_ptr<InnerGroup>>& columns);
  bool is_through();
  void go_up(InnerGroup& group);
  bool is_up() { return up_.done() && finish(); }

  bool waits_for_links() const override { return at_ == At::between; }
  std::vector<std::size_t> awaited() const override;

 private:
  enum class At : std::uint8_t { called, down, between, up };
  Work begin(InnerGroup& group, const Hierarchy::Stage& stage, const ReduceOp& op) const;

  const Vector data_;
  const ReduceOp op_;
  const Hierarchy::Stages stages_;
  At at_ = At::called;
  Work down_;
  std::vector<Work> between_;
  std::size_t through_ = 0;  ///< the first works of `between_` are done, up to this one
  Work up_;
};

/// A send or recv, which one inner group carries.
class HierMessage final : public HierTask {
 public:
  /// `far`: the peer is on another host.
  HierMessage(HierProgress& progress, const Announced& said, Work work, std::size_t peer, bool far)
      : HierTask(progress, said), work_(std::move(work)), peer_(peer), far_(far) {}

  bool step() { return finished() || (work_.done() && finish()); }
  bool waits_for_links() const override { return far_; }
  std::vector<std::size_t> awaited() const override { return {peer_}; }

 private:
  Work work_;
  const std::size_t peer_;
  const bool far_;
};

/// Starts, advances and waits for the calls on a hierarchical group. The stages of successive collectives overlap; each
/// kind of stage enters its inner group in the order of the calls.
class HierProgress {
 public:
  /// `clock`: of waits; null: the system's.
  HierProgress(const Hierarchy& hierarchy, const InnerGroups& inner, GroupOptions options, const Clock* clock);

  Work start_collective(const Request& request);
  Work start_message(const Request& request);

  /// Advances everything in flight as far as possible without waiting.
  void advance();
  /// Waits in the inner group where the next event is expected; every 20 ms it checks whether the peers live. Throws
  /// peer_lost or timeout.
  void wait_for(const HierTask& task);

  /// The bytes that all inner groups have moved.
  Moved moved() const;

 private:
  /// Collectives by their numbers: those before `down` have entered the stage down, and so on.
  struct Reached {
    std::uint64_t called = 0;
    std::uint64_t down = 0;
    std::uint64_t between = 0;
    std::uint64_t up = 0;
    std::uint64_t finished = 0;
    friend bool operator==(const Reached&, const Reached&) = default;
  };

  HierCollective& at(std::uint64_t number) { return *queue_[number - reached_.finished]; }
  bool advance_all();
  void rest(const HierTask& task, std::uint32_t seen);
  void check_peers(Moment since);
  [[noreturn]] void end(const Error& error, const HierTask* waiting = nullptr);
  std::string doing(const HierTask& task) const;

  const Hierarchy& hierarchy_;
  const InnerGroups& inner_;
  const GroupOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  Reached reached_;
  std::deque<std::shared_ptr<HierCollective>> queue_;  ///< from the first that is not finished; shared with handles
  std::deque<std::shared_ptr<HierMessage>> messages_;
  std::vector<std::uint64_t> sent_;      ///< messages to each rank
  std::vector<std::uint64_t> received_;  ///< messages from each rank
  std::optional<Error> broken_;
};

}  // namespace psring::ring
