#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <psring/bench/collective_call.h>
#include <psring/bench/rank_link.h>

namespace psring::bench {

/// Plain memory of malloc's, as most programs' vectors are; its pages are there.
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

/// A call that is ready to be made, again and again, over the same vectors.
struct PreparedCall {
  std::byte* input = nullptr;   ///< call.input() elements, rewritten before each call
  std::byte* result = nullptr;  ///< call.result() elements
  std::function<void()> run;
  std::string how;  ///< what was chosen, for the table
};

/// A rank of a library whose collectives are measured.
class RankLibrary {
 public:
  virtual ~RankLibrary() = default;
  /// The ways in which it can make this call, of which the fastest will count; none: it cannot.
  virtual std::vector<std::string> ways(const CollectiveCall& call) = 0;
  virtual PreparedCall prepare(const CollectiveCall& call, std::size_t way) = 0;
};

/// Does what the benchmark asks for until that ends. A round begins with a little computing, on a processor
/// of its own where there are enough. An iteration: the input is rewritten, a barrier, the clock, the
/// call, the clock, the result is read.
void serve_rank(RankLink& link, RankLibrary& library);

/// The main of a rank process: errors are said to the benchmark, too. Returns the exit status.
int run_rank(RankLink& link, const std::function<void()>& body);

}  // namespace psring::bench
