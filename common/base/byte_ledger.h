#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

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
/// 1"). Safe for use from several threads.
class ByteLedger {
 public:
  enum class Direction : std::uint8_t { sent, received };
  struct Key {
    Direction direction;
    std::string operation;
    std::string peer;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// Counts the messages of one key. Memory order: a sum tells of nothing else, so relaxed.
  class Counter {
   public:
    explicit Counter(std::atomic<std::uint64_t>& total) : total_(total) {}
    void add(std::uint64_t payload, std::uint64_t framing) {
      messages_.fetch_add(1, std::memory_order_relaxed);
      payload_.fetch_add(payload, std::memory_order_relaxed);
      framing_.fetch_add(framing, std::memory_order_relaxed);
      total_.fetch_add(payload + framing, std::memory_order_relaxed);
    }
    ByteCount count() const {
      return {.messages = messages_.load(std::memory_order_relaxed),
              .payload = payload_.load(std::memory_order_relaxed),
              .framing = framing_.load(std::memory_order_relaxed)};
    }

   private:
    std::atomic<std::uint64_t> messages_{0}, payload_{0}, framing_{0};
    std::atomic<std::uint64_t>& total_;
  };

  /// Returns the counter of `operation` to or from `peer`. A transport, which counts each message, keeps it: the
  /// counter lives as long as the ledger.
  Counter& counter(Direction direction, std::string_view operation, const std::string& peer) {
    const MutexLock lock(mutex_);
    return counters_
        .try_emplace(Key{direction, std::string(operation), peer}, direction == Direction::sent ? sent_ : received_)
        .first->second;
  }
  /// Counts one message.
  void add(Direction direction, std::string_view operation, const std::string& peer, std::uint64_t payload,
           std::uint64_t framing) {
    counter(direction, operation, peer).add(payload, framing);
  }
  /// All bytes so far, including framing.
  std::uint64_t sent_bytes() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t received_bytes() const { return received_.load(std::memory_order_relaxed); }
  std::map<Key, ByteCount> snapshot() const {
    const MutexLock lock(mutex_);
    std::map<Key, ByteCount> counts;
    for (const auto& [key, counter] : counters_) counts.emplace(key, counter.count());
    return counts;
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
  std::map<Key, Counter> counters_ PSRING_GUARDED_BY(mutex_);
};

}  // namespace psring
