#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <psring/bench/collective_call.h>
#include <psring/bench/peers/rank_link.h>

namespace psring::bench {

/// Memory from malloc, like most programs' vectors; its pages are already touched.
class PlainVector {
 public:
  explicit PlainVector(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
};

/// A call that can be repeated over the same vectors.
struct PreparedCall {
  std::byte* input = nullptr;   ///< call.input() elements, rewritten before each call
  std::byte* result = nullptr;  ///< call.result() elements
  std::function<void()> run;
  std::string detail;  ///< details of the chosen way, for the table
};

/// A rank of a library whose collectives are measured.
class RankLibrary {
 public:
  virtual ~RankLibrary() = default;
  /// Returns the ways in which the library can make this call; the fastest counts. Empty if the library cannot make it.
  virtual std::vector<std::string> ways(const CollectiveCall& call) = 0;
  virtual PreparedCall prepare(const CollectiveCall& call, std::size_t way) = 0;
};

/// Makes the calls of a task, and writes the times of those after the warm-up to `samples`. `barrier` returns once all
/// ranks have called it. Returns the number of wrong elements of the last result, or 0 if the task checks nothing.
std::size_t make_calls(const Task& task, const PreparedCall& prepared, const std::function<void()>& barrier,
                       std::span<Sample> samples);

/// Runs the benchmark's tasks until the benchmark ends. A round begins with a short computation, on a separate
/// processor per rank if there are enough. An iteration is: rewrite the input, barrier, clock, call, clock, read the
/// result.
void serve_rank(RankLink& link, RankLibrary& library);

/// Runs the body of a rank process. Errors are reported to the benchmark, too. Returns the exit status.
int run_rank(RankLink& link, const std::function<void()>& body);

}  // namespace psring::bench
