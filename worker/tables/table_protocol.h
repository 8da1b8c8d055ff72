#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
/// Keys, rows and gradients must stay where they are until `arrived` or `acknowledged` says so.
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

  /// True for the frames that on_message takes.
  static bool takes(net::FrameType type) { return type == net::FrameType::rows || type == net::FrameType::rows_ack; }
  /// Takes a server's frame. Throws protocol if it answers nothing that was asked.
  void on_message(const net::Message& message);

  /// The reported staleness of this worker's gradients, as ClientProtocol::take_staleness.
  ClientProtocol::Staleness take_staleness() { return std::exchange(staleness_, {}); }

  /// All rows of the last pull are here.
  bool arrived(std::size_t table) const { return tables_[table].missing == 0; }
  /// The servers have taken all gradients of the table.
  bool acknowledged(std::size_t table) const { return tables_[table].unacknowledged == 0; }

 private:
  struct Part {
    RowFrame frame;
    bool waiting = false;
  };
  struct Table {
    std::vector<Part> parts;  ///< of the last pull
    Elements into;
    std::uint64_t version = 0;
    std::uint64_t reads = 0;  ///< pulls without gradients so far
    std::size_t missing = 0;
    std::size_t unacknowledged = 0;
  };
  net::FrameHeader header(std::size_t table, const RowFrame& frame, net::FrameType type) const;

  const Layout& layout_;
  const Mark mark_;
  std::vector<Table> tables_;
  ClientProtocol::Staleness staleness_;
};

}  // namespace psring::worker
