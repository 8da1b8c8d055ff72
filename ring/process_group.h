#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/device/arena.h>
#include <psring/ring/element.h>
#include <psring/ring/reduce_op.h>

namespace psring::ring {

/// Who has what of a vector: for each rank its ranges of elements. All ranges are disjoint.
using Parts = std::vector<std::vector<Range>>;
/// One range a rank, as even as can be: rank r has [r * count / n, (r + 1) * count / n).
Parts even_parts(std::size_t count, std::size_t ranks);
/// One range a rank, of these sizes, one after the other.
Parts parts_of_sizes(std::span<const std::size_t> sizes);

/// The operations that an implementation brings itself; all others are made of these.
enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier, send, recv };
std::string_view to_string(Collective collective);

/// Payload bytes that one rank sends to and receives from other ranks.
struct Moved {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  friend bool operator==(const Moved&, const Moved&) = default;
};

/// What a plan costs a rank.
struct Cost : Moved {
  std::size_t latencies = 0;  ///< messages of an all-reduce that can only leave one after another
};

/// An operation under way, as its group sees it.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Does what can be done without waiting; true once the operation is complete.
  virtual bool advance() = 0;
  /// Returns once it is complete.
  virtual void wait() = 0;
  /// The rank that is waited for, as errors name it.
  virtual std::size_t awaited() const = 0;
};

/// A handle on an operation. Its vectors must not be touched, nor freed, until `wait` has returned or `done` was
/// true. Operations are also advanced by other calls on their group. One that is dropped goes on all the same.
class Work {
 public:
  Work() = default;  ///< complete
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Never waits. Throws as `wait` does.
  bool done() { return operation_ == nullptr || operation_->advance(); }
  /// Throws peer_lost or timeout naming the rank, the operation and its number; usage where ranks called
  /// different operations.
  void wait() {
    if (operation_ != nullptr) operation_->wait();
  }
  /// The rank that is waited for. REQUIRES: not done.
  std::size_t awaited() const { return operation_->awaited(); }

 private:
  std::shared_ptr<Operation> operation_;
};

/// Ranks that exchange vectors. All of them call the same collectives, with the same counts and types, in the
/// same order; each gets a number, from 0. Calls return at once; see Work. Any number of operations may be under
/// way. Belongs to one thread.
///
/// A group that threw is broken: all its calls throw the same error again.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual std::size_t rank() const = 0;
  virtual std::size_t size() const = 0;

  /// Memory that the group reaches without a copy: vectors that lie here are the fastest. Null: all are alike.
  virtual Arena* arena() { return nullptr; }
  /// Where another rank's arena lies here, at a mark of it (Arena::mark), or this one's. Null where ranks do not share
  /// memory. REQUIRES: the mark is one of its arena.
  virtual std::byte* reach(std::size_t /*rank*/, std::uint64_t /*mark*/) { return nullptr; }

  /// Every rank's vector becomes the reduction of all ranks'.
  virtual Work all_reduce(Vector data, const ReduceOp& op) = 0;
  /// parts[r] of rank r's vector becomes the reduction of all ranks' parts[r]. What it holds elsewhere is
  /// undefined afterwards.
  virtual Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) = 0;
  /// Every rank's vector gets parts[r] from rank r, for all r.
  virtual Work all_gather(Vector data, const Parts& parts) = 0;
  /// Every rank's vector becomes the root's.
  virtual Work broadcast(Vector data, std::size_t root) = 0;
  /// Complete once all ranks have called it.
  virtual Work barrier() = 0;
  /// In order for each pair of ranks; counts and types have to agree.
  virtual Work send(ConstVector data, std::size_t to) = 0;
  virtual Work recv(Vector data, std::size_t from) = 0;

  /// A collective: the ranks that name the same colour form a group, ranked by (key, rank here).
  virtual std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) = 0;

  /// Which plan such a call takes, for people: "direct, shared memory".
  virtual std::string describe(Collective collective, std::size_t count, ElementType type) const = 0;
  /// What the plan of such a call moves at this rank; `parts` where the call has them, `root` for
  /// a broadcast.
  virtual Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts = {},
                       std::size_t root = 0) const = 0;
  /// Do all-reduces add in rank order, so that the bits are those of one process that does? Else a plan's order is
  /// another, and sums differ by rounding.
  virtual bool sums_in_rank_order(Collective reduction, ElementType type) const = 0;
  /// What this rank has moved so far, as its transport counted.
  virtual Moved moved() const = 0;
  /// Adds to the group's byte ledger what was moved since the last call; nothing where its transport does that.
  virtual void account() {}
};

}  // namespace psring::ring
