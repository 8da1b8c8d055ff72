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
#include <psring/common/net/row_marks.h>
#include <psring/worker/tables/row_use.h>

namespace psring::worker {

/// The most bytes of a key, on average of a frame, with the bit that says whether its row is here.
inline constexpr std::size_t kKeyWithBits = 16;

/// The keys of a batch, hashed, ascending.
struct RowKeys {
  std::span<const std::uint64_t> keys;
  std::span<const std::uint32_t> counts = {};  ///< occurrences, which travel with the keys; empty: they do not
  std::span<std::byte> memory = {};            ///< for both as they travel, 12 bytes a key; kKeyWithBits with `here`
  std::span<std::byte> landing = {};           ///< for answers in parts: for each key its row, and 8 bytes if ahead
  std::span<const std::uint8_t> here = {};     ///< 1 for each key whose row nobody sends; empty: all rows are sent
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
class TableProtocol {
 public:
  using Frames = std::vector<net::Outgoing>;
  using Mark = std::function<std::uint64_t(const void*)>;

  /// `mark`: see ClientProtocol. REQUIRES: the layout outlives this.
  TableProtocol(const Layout& layout, Mark mark);

  /// Asks for the rows of different keys, ascending, at a version. REQUIRES: the rows that were read last have arrived,
  /// or, of the steps before, all but those of TableLayout::lookahead.
  void pull(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, RowUse use, Frames& out);
  /// Pushes the gradients of the rows that were pulled for a step, equally many elements each.
  void push(std::size_t table, std::uint64_t step, ConstElements gradients, net::Encoding encoding, Frames& out);

  /// True for the frames that on_message takes.
  static bool takes(net::FrameType type) { return type == net::FrameType::rows || type == net::FrameType::rows_ack; }
  /// Takes a server's frame. Throws protocol if it answers nothing that was asked.
  void on_message(const net::Message& message);

  /// All rows of the last pull of this version are here.
  bool arrived(std::size_t table, std::uint64_t version, RowUse use) const {
    return tables_[table].lanes[lane_of(table, version, use == RowUse::read)].missing == 0;
  }
  /// The servers have taken all gradients of the table.
  bool acknowledged(std::size_t table) const { return tables_[table].unacknowledged == 0; }

  // For programs that do not know a step's keys at its beginning (worker/programs/unpaired_rows.h).
  /// As `pull`, with flags of the frames.
  void ask(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, std::uint8_t flags,
           Frames& out);
  net::FrameHeader header(std::size_t table, const RowFrame& frame, net::FrameType type, std::uint64_t version) const;
  /// Servers will acknowledge so many frames.
  void await(std::size_t table, std::size_t frames) { tables_[table].unacknowledged += frames; }
  /// Takes the frames with kListed.
  void set_listener(std::function<void(std::size_t table, std::span<const std::byte>)> listener) {
    listener_ = std::move(listener);
  }

 private:
  struct Part {
    RowFrame frame;
    bool waiting = false;
    bool ahead = false;      ///< of two answers, none of them here
    bool last_came = false;  ///< the second of them, which is empty, came first
    net::Marks marks;        ///< of the first one, or of the rows that were here before
    std::size_t landed = 0;  ///< rows that are here
  };
  /// Pulls that follow each other.
  struct Lane {
    std::vector<Part> parts;  ///< of the last pull
    Elements into;
    std::uint64_t version = 0;
    std::size_t missing = 0;
  };
  struct Table {
    std::vector<Lane> lanes;  ///< of reads; then of the steps that may be on their way
    std::uint64_t reads = 0;  ///< pulls without gradients so far
    std::size_t unacknowledged = 0;
  };
  std::size_t lane_of(std::size_t table, std::uint64_t version, bool reads) const {
    return reads ? 0 : 1 + version % (tables_[table].lanes.size() - 1);
  }

  const Layout& layout_;
  const Mark mark_;
  std::vector<Table> tables_;
  std::function<void(std::size_t, std::span<const std::byte>)> listener_;
};

}  // namespace psring::worker
