#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <psring/worker/tables/row_client.h>

namespace psring::worker {

/// The frames of a program that does not know a step's keys at its beginning (net::kUnpaired): it fetches rows any
/// number of times in a step, and then pushes the gradients of the rows that have any, with their keys. What is sent
/// must stay where it is until it has arrived, or is acknowledged.
class UnpairedRows {
 public:
  using Payloads = std::span<const std::span<const std::byte>>;

  /// REQUIRES: the client outlives it.
  explicit UnpairedRows(PsClient& client);
  UnpairedRows(const UnpairedRows&) = delete;
  UnpairedRows& operator=(const UnpairedRows&) = delete;

  /// Asks for the rows of different keys, ascending, at a version. REQUIRES: the rows that were fetched last in this
  /// version, or in one of the same parity, have arrived.
  void fetch(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version, Elements into);
  /// All rows that were fetched last in this version are here.
  bool fetched(std::size_t table, std::uint64_t version) const {
    return rows_.protocol().arrived(table, version, RowUse::train);
  }
  /// Pushes gradients of step `step`, by frames of cut_rows. A frame's payload is its keys, then their gradients.
  /// REQUIRES: the servers have taken the gradients of the step before.
  void push(std::size_t table, std::span<const RowFrame> frames, Payloads payloads, std::uint64_t step, float lr);
  /// Gives rows values, which are in f32: see push. REQUIRES: this is worker 0.
  void assign(std::size_t table, std::span<const RowFrame> frames, Payloads payloads);
  /// The servers have taken all that was pushed.
  bool acknowledged(std::size_t table) const { return rows_.protocol().acknowledged(table); }
  /// Asks for at most `most` trained rows of a piece of an owner, from a hashed key on. The key must stay until
  /// `listed`. REQUIRES: no list is awaited.
  void list(std::size_t table, const RowFrame& piece, const std::uint64_t& first, std::size_t most);
  /// The payload of the awaited list, once it has come.
  const std::optional<std::vector<std::byte>>& listed(std::size_t table) const { return lists_[table].listed; }

 private:
  struct List {
    std::size_t most_bytes = 0;  ///< of the awaited one
    std::optional<std::vector<std::byte>> listed;
  };
  void take_list(std::size_t table, std::span<const std::byte> payload);
  void send(std::size_t table, std::span<const RowFrame> frames, Payloads payloads, const net::FrameHeader& like);

  RowClient rows_;
  std::vector<List> lists_;
};

}  // namespace psring::worker
