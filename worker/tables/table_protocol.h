#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/layout.h>
#include <psring/common/net/outbox.h>
#include <psring/worker/servers/client_protocol.h>

namespace psring::worker {

/// The keys of a batch, hashed, ascending.
struct RowKeys {
  std::span<const std::uint64_t> keys;
  std::span<const std::uint32_t> counts = {};  ///< occurrences, which travel with the keys; empty: they do not
  std::span<std::byte> memory = {};            ///< for both as they travel, 12 bytes a key
};

/// A part of a batch's rows that one frame asks for.
struct RowFrame {
  std::size_t owner = 0;
  Range buckets;
  Range rows;  ///< places in the batch's keys
};

/// Cuts a batch's keys by owner and piece, and pieces at buckets' bounds so that no payload exceeds 1 MiB, unless one
/// bucket's does. The frames of a piece tile it in order; a piece without keys has one empty frame. Throws data if a
/// bucket's rows exceed the largest payload. `keys`: hashed, ascending.
std::vector<RowFrame> cut_rows(const TableLayout& table, std::size_t owners, std::span<const std::uint64_t> keys,
                               std::size_t key_bytes = sizeof(std::uint64_t));

/// The worker's side of the exchange of rows (docs/wire.md). A pure state machine: calls and frames in, frames out.
/// Keys, rows and gradients must stay where they are until `arrived`, `fetched` or `acknowledged` says so.
///
/// A trainer that knows a step's keys at its beginning uses `pull` and `push`. A program uses the unpaired calls: it
/// fetches rows any number of times in a step, and then pushes the gradients of the rows that have any, with their
/// keys.
class TableProtocol {
 public:
  using Frames = std::vector<net::Outgoing>;
  using Mark = std::function<std::uint64_t(const void*)>;

  /// `mark`: see ClientProtocol. REQUIRES: the layout outlives this.
  TableProtocol(const Layout& layout, Mark mark)
      : layout_(layout), mark_(std::move(mark)), tables_(layout.tables.size()) {}

  /// Asks for the rows of different keys, ascending, at a version. `read`: no gradients follow, and the bytes count as
  /// control traffic. REQUIRES: the table's last rows have arrived.
  void pull(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, bool read, Frames& out);
  /// Pushes the gradients of the rows that were pulled last, of step `version`.
  void push(std::size_t table, ConstElements gradients, Frames& out);

  /// Asks for the rows of different keys, ascending, at a version. REQUIRES: the rows that were fetched last in this
  /// version, or in one of the same parity, have arrived.
  void fetch(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version, Elements into, Frames& out);
  /// Pushes gradients of step `step`, by frames of cut_rows. A frame's payload is its keys, then their gradients.
  /// REQUIRES: the servers have taken the gradients of the step before.
  void push_keyed(std::size_t table, std::span<const RowFrame> frames,
                  std::span<const std::span<const std::byte>> payloads, std::uint64_t step, float lr, Frames& out);
  /// Gives rows values, which are in f32: see push_keyed. REQUIRES: this is worker 0.
  void assign(std::size_t table, std::span<const RowFrame> frames, std::span<const std::span<const std::byte>> payloads,
              Frames& out);
  /// Asks for at most `most` trained rows of a piece of an owner, from a hashed key on. The key must stay until
  /// `listed`. REQUIRES: no list is awaited.
  void list(std::size_t table, const RowFrame& piece, const std::uint64_t& first, std::size_t most, Frames& out);

  /// True for the frames that on_message takes.
  static bool takes(net::FrameType type) { return type == net::FrameType::rows || type == net::FrameType::rows_ack; }
  /// Takes a server's frame. Throws protocol if it answers nothing that was asked.
  void on_message(const net::Message& message);

  /// The reported staleness of this worker's gradients, as ClientProtocol::take_staleness.
  ClientProtocol::Staleness take_staleness() { return std::exchange(staleness_, {}); }

  /// All rows of the last pull are here.
  bool arrived(std::size_t table) const { return tables_[table].lanes[0].missing == 0; }
  /// All rows that were fetched last in this version are here.
  bool fetched(std::size_t table, std::uint64_t version) const {
    return tables_[table].lanes[1 + version % 2].missing == 0;
  }
  /// The payload of the awaited list, once it has come.
  const std::optional<std::vector<std::byte>>& listed(std::size_t table) const { return tables_[table].listed; }
  /// The servers have taken all gradients of the table.
  bool acknowledged(std::size_t table) const { return tables_[table].unacknowledged == 0; }

 private:
  struct Part {
    RowFrame frame;
    bool waiting = false;
  };
  /// Pulls that follow each other.
  struct Lane {
    std::vector<Part> parts;  ///< of the last pull
    Elements into;
    std::uint64_t version = 0;
    std::size_t missing = 0;
  };
  struct Table {
    Lane lanes[3];            ///< of `pull`; of `fetch` in even and in odd versions
    std::uint64_t reads = 0;  ///< pulls without gradients so far
    std::size_t unacknowledged = 0;
    std::size_t list_bytes = 0;  ///< of the awaited list, at most
    std::optional<std::vector<std::byte>> listed;
  };
  net::FrameHeader header(std::size_t table, const RowFrame& frame, net::FrameType type, std::uint64_t version) const;
  void ask(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, std::uint8_t flags,
           Frames& out);
  Lane& lane(std::size_t table, std::uint8_t flags, std::uint64_t version);

  const Layout& layout_;
  const Mark mark_;
  std::vector<Table> tables_;
  ClientProtocol::Staleness staleness_;
};

}  // namespace psring::worker
