#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/error.h>
#include <psring/ring/call.h>
#include <psring/ring/process_group.h>

namespace psring::ring {

/// An operation as ranks tell each other of it, compare it, count it and name it in errors: of the group itself, or of
/// an outer group that it does a part for.
struct Announced {
  Call call;
  std::uint64_t number = 0;
  std::size_t ranks = 1;  ///< a mean is divided by so many
};

/// A group that an outer group is made of. The outer one does the waiting, so that it goes on with all of its inner
/// groups meanwhile: it calls `watch`, then looks at everything, then `rest`, and misses nothing that came in between.
class InnerGroup : public ProcessGroup {
 public:
  /// A subgroup that its ranks know of without a word. `ranks` are of this group, this rank's among them; `names` are
  /// theirs in the outer group. REQUIRES: no other group with a rank of them has, or gets, this id.
  virtual std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                           std::vector<std::size_t> names) = 0;
  /// The operations that are called from here on are parts of this one.
  virtual void announce(const Announced& outer) = 0;

  /// Goes on with everything that is under way as far as it goes without waiting.
  virtual void advance() = 0;
  virtual std::uint32_t watch() { return 0; }
  /// Waits until something happened since `watch` returned `seen`, at most until then.
  virtual void rest(std::uint32_t seen, Moment until) = 0;
  /// Instead of `rest`.
  virtual void leave() {}
  /// Tells the rank that the oldest operation waits for what we wait in, where it could not know.
  virtual void probe() {}

  /// Ends the group here and at its other ranks with this error; nothing where it has ended.
  virtual void break_off(const Error& error) noexcept = 0;
  /// The error with which it has ended, and which its ranks were told.
  virtual std::optional<Error> broken() const = 0;

  /// How such a call goes: "ring over tcp 10.0.0.2:7001".
  virtual std::string way(Collective collective, std::size_t count, ElementType type) const = 0;
};

}  // namespace psring::ring
