#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include <psring/common/device/arena.h>
#include <psring/ring/collective.h>
#include <psring/ring/element.h>
#include <psring/ring/reduce_op.h>
#include <psring/ring/work.h>

namespace psring {
class Events;
}

namespace psring::ring {

struct Request;
struct Split;

/// Ranks that exchange vectors. All ranks call the same collectives, with the same counts and types, in the same order;
/// each operation gets a number, from 0. Calls return at once, with a handle (Work). Any number of operations may be in
/// flight. A group belongs to one thread. A group that threw an error is broken: all later calls throw the same error.
///
/// The calls check and fingerprint their arguments once, here. Then they hand one Request to `start`, which a backend
/// implements: shared memory (shm/), messages over links (link/), both for several hosts (hier/), NCCL (cuda/).
///
/// To add an all-reduce algorithm between processes that exchange messages, write one plan file in plan/ and add it to
/// the table in plan/algorithm.h. No backend changes: link/ executes any plan.
class ProcessGroup {
 public:
  using Source = std::source_location;  ///< the caller's line, for the event stream

  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return size_; }

  /// Every rank's vector becomes the reduction of all ranks' vectors.
  Work all_reduce(Vector data, const ReduceOp& op, Source source = Source::current());
  /// parts[r] of rank r's vector becomes the reduction of all ranks' parts[r]. The other elements of the vector are
  /// undefined afterwards.
  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op, Source source = Source::current());
  /// Every rank's vector receives parts[r] from rank r, for all r.
  Work all_gather(Vector data, const Parts& parts, Source source = Source::current());
  /// Every rank's vector becomes the root's vector.
  Work broadcast(Vector data, std::size_t root, Source source = Source::current());
  /// Complete once all ranks have called it.
  Work barrier(Source source = Source::current());
  /// The same before a rank leaves: a rank that calls anything else is told that this one has ended its program.
  Work last_barrier(Source source = Source::current());
  /// Messages between one pair of ranks keep their order; counts and types have to agree.
  Work send(ConstVector data, std::size_t to, Source source = Source::current());
  Work recv(Vector data, std::size_t from, Source source = Source::current());

  /// A collective: the ranks that pass the same colour form a group, ranked by (key, rank here).
  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key);
  /// The same without a message, if every rank knows the colours of all ranks; ranked by rank here.
  /// REQUIRES: all ranks pass the same colours, and have made the same splits before.
  std::unique_ptr<ProcessGroup> split(std::span<const std::size_t> colours);

  /// Emits every operation of this group, and of the groups that are split from it later, as a Transfer: from the call
  /// until this rank knows that the operation is complete. An operation that is polled with Work::done may end later in
  /// the stream than in reality. REQUIRES: the stream outlives the group.
  void report_to(Events& events) { events_ = &events; }

  /// Counts the operations that are called from now on as control traffic, or as payload of the exchange again.
  void count_as_control(bool control) { control_ = control; }

  // The interface of a backend.

  /// Starts an operation whose arguments are checked. Groups that are made of other groups call this directly.
  virtual Work start(const Request& request) = 0;
  /// The group of the ranks that `split` names, this rank among them.
  virtual std::unique_ptr<ProcessGroup> subgroup(const Split& split) = 0;

  /// The plan that such a call takes, for people: "direct, shared memory".
  virtual std::string describe(Collective collective, std::size_t count, ElementType type) const = 0;
  /// The bytes that the plan of such a call moves at this rank. `parts`: for calls that take parts; `root`: of a
  /// broadcast.
  virtual Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts = {},
                       std::size_t root = 0) const = 0;
  /// Do reductions add in rank order, with the bits of one process that does the same? Otherwise the plan fixes another
  /// order, and sums differ by rounding.
  virtual bool sums_in_rank_order(Collective reduction, ElementType type) const = 0;
  /// The bytes that this rank has moved so far, as its transport counted them.
  virtual Moved moved() const = 0;
  /// Adds the bytes that were moved since the last call to the group's byte ledger. Does nothing if the transport
  /// counts into a ledger by itself.
  virtual void account() {}

  /// Memory that all ranks reach without a copy: vectors that lie there are the fastest. Null if the group has none.
  virtual Arena* arena() { return nullptr; }
  /// The address, in this process, of a mark (Arena::mark) in a rank's arena. Null if the ranks do not share memory.
  /// REQUIRES: the mark belongs to that rank's arena.
  virtual std::byte* reach(std::size_t /*rank*/, std::uint64_t /*mark*/) { return nullptr; }

 protected:
  ProcessGroup(std::size_t rank, std::size_t size) : rank_(rank), size_(size) {}
  /// For a backend that wraps another group: both number their subgroups by one counter.
  void share_group_numbers(const ProcessGroup& other) { next_group_ = other.next_group_; }

 private:
  Work call(const Request& called, Source source);
  std::unique_ptr<ProcessGroup> make_subgroup(const Split& split);

  const std::size_t rank_;
  const std::size_t size_;
  /// The first number that is free for a subgroup; shared by all groups that are split from one another at this rank.
  std::shared_ptr<std::uint32_t> next_group_ = std::make_shared<std::uint32_t>(1);
  Events* events_ = nullptr;  ///< null: operations are not reported
  bool control_ = false;      ///< see count_as_control
};

}  // namespace psring::ring
