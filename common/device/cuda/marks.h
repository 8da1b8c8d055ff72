#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include <psring/common/device/cuda/handles.h>

namespace psring::cuda {

/// Numbered positions in a queue. Events are reused once the queue has reached them.
class Marks {
 public:
  using Mark = std::uint64_t;

  Mark record(cudaStream_t stream) {
    Event event = take();
    event.record(stream);
    recorded_.emplace(++last_, std::move(event));
    return last_;
  }

  // A mark without an event was reached: its event has been reused.
  void wait(Mark mark) const {
    const auto at = recorded_.find(mark);
    if (at != recorded_.end()) at->second.wait();
  }
  bool reached(Mark mark) const {
    const auto at = recorded_.find(mark);
    return at == recorded_.end() || at->second.reached();
  }
  void hold(Mark mark, cudaStream_t stream) const {
    const auto at = recorded_.find(mark);
    if (at != recorded_.end()) at->second.hold(stream);
  }

 private:
  Event take() {
    if (recorded_.empty() || !recorded_.begin()->second.reached()) return Event();
    return std::move(recorded_.extract(recorded_.begin()).mapped());
  }

  std::map<Mark, Event> recorded_;
  Mark last_ = 0;
};

}  // namespace psring::cuda
