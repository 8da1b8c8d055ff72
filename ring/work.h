#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace psring::ring {

/// An operation in flight, as its group implements it.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Makes all progress that is possible without waiting; returns true once the operation is complete.
  virtual bool advance() = 0;
  /// Returns once the operation is complete.
  virtual void wait() = 0;
  /// The ranks that this operation waits for, as far as this rank knows, as errors name them; at least one.
  virtual std::vector<std::size_t> awaited() const = 0;
};

/// A handle on an operation, like MPI's request. The vectors of the operation must not be touched or freed until `wait`
/// has returned or `done` has returned true. Other calls on the group advance the operation, too. If a handle is
/// dropped, its operation still runs to the end.
class Work {
 public:
  Work() = default;  ///< a complete operation
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Is the operation complete? Never waits. Throws as `wait` does.
  bool done() { return operation_ == nullptr || operation_->advance(); }
  /// Throws peer_lost or timeout, naming the rank, the operation and its number; usage if ranks called different
  /// operations.
  void wait() {
    if (operation_ != nullptr) operation_->wait();
  }
  /// The ranks that the operation waits for. REQUIRES: not done.
  std::vector<std::size_t> awaited() const { return operation_->awaited(); }

 private:
  std::shared_ptr<Operation> operation_;
};

}  // namespace psring::ring
