#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/process_group.h>
#include <psring/ring/split.h>

namespace psring::ring {

/// A group of which an outer group is composed. The outer group waits for several inner groups at once: it calls
/// `watch`, advances everything, then calls `rest`, and misses no event that occurred in between.
class InnerGroup : public ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;

  /// A subgroup that its ranks agree on without communication. `ranks`: of this group, this rank among them; `names`:
  /// their ranks in the outer group, which errors use, or empty. REQUIRES: no other group that shares a rank with it
  /// has this id, now or later.
  virtual std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                           std::vector<std::size_t> names) = 0;
  std::unique_ptr<ProcessGroup> subgroup(const Split& split) final { return part(split.ranks, split.id, {}); }

  /// Advances everything that is in flight as far as possible without waiting.
  virtual void advance() = 0;
  virtual std::uint32_t watch() { return 0; }
  /// Waits until something happened since `watch` returned `seen`, at most until the given moment.
  virtual void rest(std::uint32_t seen, Moment until) = 0;
  /// Ends a `rest` in another thread, or the next one, if that sleeps in a transport.
  virtual void wake() {}
  /// Ends a `watch` without `rest`.
  virtual void leave() {}
  /// Tells the rank that the oldest operation waits for which operation this rank waits in, if the backend does not
  /// show that to all ranks anyway.
  virtual void probe() {}

  /// Ends the group with this error, here and at its other ranks. Does nothing if the group has ended already.
  virtual void break_off(const Error& error) noexcept = 0;
  /// The error that ended the group, and that was sent to its other ranks.
  virtual std::optional<Error> broken() const = 0;

  /// The algorithm and the transport of such a call: "ring over tcp 10.0.0.2:7001".
  virtual std::string way(Collective collective, std::size_t count, ElementType type) const = 0;
};

}  // namespace psring::ring
