#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <psring/ring/process_group.h>

namespace psring::worker {

/// One operation made of several messages or collectives. It ends by decoding the codes that have arrived.
class CodedWork final : public ring::Operation {
 public:
  /// `self`: this rank, as errors name it. `decode`: called once, when all of `works` are done.
  CodedWork(std::size_t self, std::vector<ring::Work> works, std::function<void()> decode)
      : self_(self), works_(std::move(works)), decode_(std::move(decode)) {}

  bool advance() override {
    if (!std::ranges::all_of(works_, [](ring::Work& work) { return work.done(); })) return false;
    decode();
    return true;
  }
  void wait() override {
    for (ring::Work& work : works_) work.wait();
    decode();
  }
  std::vector<std::size_t> awaited() const override {
    const auto first = std::ranges::find_if(works_, [](ring::Work work) { return !work.done(); });
    return first == works_.end() ? std::vector{self_} : first->awaited();
  }

 private:
  void decode() {
    if (!std::exchange(decoded_, true)) decode_();
  }

  const std::size_t self_;
  std::vector<ring::Work> works_;
  const std::function<void()> decode_;
  bool decoded_ = false;
};

}  // namespace psring::worker
