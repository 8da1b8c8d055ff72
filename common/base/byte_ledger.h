#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include <psring/common/base/system/mutex.h>

namespace psring {

/// The bytes that one operation moved: the tensors' payload, and the framing around the payload.
struct ByteCount {
  std::uint64_t messages = 0;
  std::uint64_t payload = 0;
  std::uint64_t framing = 0;

  ByteCount& operator+=(const ByteCount& other) {
    messages += other.messages;
    payload += other.payload;
    framing += other.framing;
    return *this;
  }
};

/// Counts the messages and bytes that a process sent and received, by operation ("push", "pull" ...) and peer ("server
/// 1"). Transports add one entry per message. Safe for use from several threads.
class ByteLedger {
 public:
  enum class Direction : std::uint8_t { sent, received };
  struct Key {
    Direction direction;
    std::string operation;
    std::string peer;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Counts one message of `operation` to or from `peer`. Memory order: a sum tells of nothing else, so relaxed.
  void add(Direction direction, const std::string& operation, const std::string& peer, std::uint64_t payload,
           std::uint64_t framing) {
    (direction == Direction::sent ? sent_ : received_).fetch_add(payload + framing, std::memory_order_relaxed);
    const MutexLock lock(mutex_);
    counts_[{direction, operation, peer}] += {1, payload, framing};
  }
  /// All bytes so far, including framing.
  std::uint64_t sent_bytes() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t received_bytes() const { return received_.load(std::memory_order_relaxed); }
  std::map<Key, ByteCount> snapshot() const {
    const MutexLock lock(mutex_);
    return counts_;
  }
  /// The sum over peers of one operation.
  ByteCount total(Direction direction, const std::string& operation) const {
    ByteCount sum;
    for (const auto& [key, count] : snapshot())
      if (key.direction == direction && key.operation == operation) sum += count;
    return sum;
  }

 private:
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  mutable Mutex mutex_;
  std::map<Key, ByteCount> counts_ PSRING_GUARDED_BY(mutex_);
};

}  // namespace psring
