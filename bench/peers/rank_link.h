#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <psring/bench/collective_call.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/mapping.h>

namespace psring::bench {

/// Messages between the benchmark and the rank processes of all contestants: packets of a local socket, each a
/// MessageKind with its data. Both ends come from the same build, so records are sent as they lie in memory.
///
///   rank:  hello(rank:u32)   bench: welcome(ranks:u32) + the shared area's file
///   rank:  share(bytes)      bench, once all ranks have: share(bytes) of each rank, in order; repeatable
///   rank:  ready
///   bench: task(Task)        rank: ways(names, one per line) | done(Done) + a line of details; repeatable
///   bench: end, and the rank ends
///   rank:  failed(ErrorKind, text), at any time
enum class MessageKind : std::uint8_t { hello, welcome, share, ready, task, ways, done, end, failed };

struct Task {
  enum class Kind : std::uint8_t {
    ways,     ///< asks for the ways to make this call
    measure,  ///< times the call
    limit,    ///< times a pass over the rank's own vector with the call's memory traffic
  };
  Kind kind = Kind::ways;
  bool check = false;  ///< check the last iteration's result
  std::uint32_t way = 0;
  std::uint32_t warm_up = 0;
  std::uint32_t iterations = 1;
  CollectiveCall call;
};

struct Done {
  std::uint64_t wrong = 0;
};

inline constexpr std::size_t kMaxIterations = 100000;
inline constexpr std::size_t kMaxRanks = 64;

/// The times of an iteration on one rank, in nanoseconds.
struct Sample {
  std::int64_t begin = 0;  ///< start of the call, on the machine's monotonic clock
  std::int64_t call = 0;
  std::int64_t loop = 0;  ///< rewriting the input, the call, and reading the result
};

/// Memory that the benchmark shares with all ranks of a contestant: the benchmark's own barrier, which is the same for
/// all contestants, and the samples.
class SharedArea {
 public:
  static std::size_t file_bytes(std::size_t ranks) {
    return sizeof(Header) + ranks * kMaxIterations * sizeof(Sample);  // sparse
  }
  SharedArea(const Fd& file, std::size_t ranks) : mapping_(file, file_bytes(ranks)), ranks_(ranks) {}

  /// Returns once all ranks have arrived. Spins briefly, then yields the processor.
  void barrier();
  std::span<Sample> samples(std::size_t rank) const {
    return {reinterpret_cast<Sample*>(mapping_.data() + sizeof(Header)) + rank * kMaxIterations, kMaxIterations};
  }

 private:
  struct Header {
    alignas(64) std::atomic<std::uint32_t> arrived{0};
    alignas(64) std::atomic<std::uint32_t> phase{0};
  };
  Header& header() const { return *reinterpret_cast<Header*>(mapping_.data()); }

  Mapping mapping_;
  std::size_t ranks_;
};

/// A received message.
struct RankMessage {
  MessageKind kind = MessageKind::hello;
  std::vector<std::byte> bytes;
  std::vector<Fd> files;

  /// Throws protocol if the message has another size.
  template <class Record>
  Record as() const {
    Record record;
    copy_to(&record, sizeof record);
    return record;
  }
  std::string text(std::size_t from = 0) const;

 private:
  void copy_to(void* record, std::size_t size) const;
};

void send_message(const Fd& socket, MessageKind kind, std::span<const std::byte> bytes = {},
                  std::span<const int> files = {});
/// Truncates the text to the size of a packet.
void send_text(const Fd& socket, MessageKind kind, std::span<const std::byte> head, const std::string& text);
template <class Record>
std::span<const std::byte> record_bytes(const Record& record) {
  return std::as_bytes(std::span(&record, 1));
}
/// Returns the next message, or nothing for now. Throws peer_lost if the other end is gone.
std::optional<RankMessage> receive_message(const Fd& socket);

/// A rank's end of the connection. While it lives, the process ends as soon as the benchmark ends, even if it is stuck
/// in a library.
class RankLink {
 public:
  /// `control`: the benchmark's address.
  RankLink(const std::string& control, std::size_t rank);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  std::size_t rank() const { return rank_; }
  std::size_t ranks() const { return ranks_; }
  SharedArea& area() { return *area_; }

  /// Sends this rank's bytes, and returns those of all ranks.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> bytes);
  void ready() { send_message(socket_, MessageKind::ready); }
  /// Waits without spinning. Returns nothing once the benchmark is over.
  std::optional<Task> next_task();
  void answer_ways(const std::vector<std::string>& ways);
  void answer(const Done& done, const std::string& detail) {
    send_text(socket_, MessageKind::done, record_bytes(done), detail);
  }
  void fail(const Error& error);

 private:
  RankMessage wait_for(MessageKind kind);

  const std::size_t rank_;
  std::size_t ranks_ = 0;
  Fd socket_;
  Fd stop_;
  std::optional<SharedArea> area_;
  std::jthread watch_;
};

}  // namespace psring::bench
