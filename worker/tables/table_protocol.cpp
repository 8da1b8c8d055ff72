#include <algorithm>
#include <bit>
#include <cstring>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/worker/tables/table_protocol.h>

namespace psring::worker {

using net::FrameHeader;
using net::FrameType;
using optim::bucket_of;

namespace {

constexpr std::size_t kPayloadBytes = std::size_t{1} << 20;

/// The place behind the rows of a frame that begins at `begin`, where the piece's keys end at `end`.
std::size_t end_of_frame(std::span<const std::uint64_t> keys, std::size_t begin, std::size_t end, std::size_t most) {
  if (end - begin <= most) return end;
  std::size_t cut = begin + most;
  while (cut > begin && bucket_of(keys[cut]) == bucket_of(keys[cut - 1])) --cut;
  if (cut > begin) return cut;
  while (cut < end && bucket_of(keys[cut]) == bucket_of(keys[begin])) ++cut;
  return cut;
}

}  // namespace

std::vector<RowFrame> cut_rows(const TableLayout& table, std::size_t owners, std::span<const std::uint64_t> keys,
                               std::size_t key_bytes) {
  const std::size_t row_bytes = std::max(table.row_bytes(), key_bytes);
  const std::size_t most = std::max<std::size_t>(kPayloadBytes / row_bytes, 1);
  std::vector<RowFrame> frames;
  std::size_t row = 0;
  for (std::size_t owner = 0; owner < owners; ++owner)
    for (std::size_t piece = 0; piece < table.pieces; ++piece) {
      const Range buckets = table_piece(table_buckets(owners, owner), table.pieces, piece);
      if (buckets.empty()) continue;
      const auto behind = std::ranges::lower_bound(keys.subspan(row), buckets.end, {}, bucket_of);
      const auto end = row + static_cast<std::size_t>(behind - keys.subspan(row).begin());
      std::size_t bucket = buckets.begin;
      do {
        const std::size_t cut = end_of_frame(keys, row, end, most);
        if ((cut - row) * row_bytes > net::kMaxPayloadBytes)
          fail(ErrorKind::data, "table '{}': {} keys of one batch in bucket {}", table.name, cut - row, bucket);
        const std::size_t next = cut == end ? buckets.end : bucket_of(keys[cut]);
        frames.push_back({owner, {bucket, next}, {row, cut}});
        bucket = next;
        row = cut;
      } while (row < end);
    }
  return frames;
}

namespace {

/// The keys of a frame, with their counts behind them if these travel.
std::span<const std::byte> payload_of(const RowKeys& asked, Range rows) {
  const auto keys = std::as_bytes(asked.keys.subspan(rows.begin, rows.size()));
  if (asked.counts.empty()) return keys;
  const auto counts = std::as_bytes(asked.counts.subspan(rows.begin, rows.size()));
  const std::size_t each = optim::key_bytes(true);
  const std::span<std::byte> out = asked.memory.subspan(rows.begin * each, rows.size() * each);
  std::ranges::copy(counts, std::ranges::copy(keys, out.begin()).out);
  return out;
}

}  // namespace

FrameHeader TableProtocol::header(std::size_t table, const RowFrame& frame, FrameType type,
                                  std::uint64_t version) const {
  FrameHeader header;
  header.type = type;
  header.dtype = layout_.tables[table].type;
  header.unit = static_cast<std::uint32_t>(layout_.units.size() + table);
  header.set_range(frame.buckets);
  header.step = header.version = version;
  return header;
}

TableProtocol::Lane& TableProtocol::lane(std::size_t table, std::uint8_t flags, std::uint64_t version) {
  return tables_[table].lanes[(flags & net::kUnpaired) != 0 ? 1 + version % 2 : 0];
}

void TableProtocol::pull(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, bool read,
                         Frames& out) {
  ask(table, asked, version, into, read ? FrameHeader::kStartUp : std::uint8_t{0}, out);
}

void TableProtocol::fetch(std::size_t table, std::span<const std::uint64_t> keys, std::uint64_t version, Elements into,
                          Frames& out) {
  ask(table, {.keys = keys}, version, into, net::kUnpaired, out);
}

void TableProtocol::ask(std::size_t number, const RowKeys& asked, std::uint64_t version, Elements into,
                        std::uint8_t flags, Frames& out) {
  const std::span<const std::uint64_t> keys = asked.keys;
  Table& table = tables_[number];
  Lane& own = lane(number, flags, version);
  const std::size_t width = layout_.tables[number].width;
  check(own.missing == 0 && into.size() == keys.size() * width, "rows of a table are pulled twice at once");
  own.into = into;
  own.version = version;
  own.parts.clear();
  for (const RowFrame& frame :
       cut_rows(layout_.tables[number], layout_.owners, keys, optim::key_bytes(!asked.counts.empty()))) {
    own.parts.push_back({frame, true});
    FrameHeader head = header(number, frame, FrameType::rows_pull, version);
    head.flags = flags;
    if (flags != 0) head.step = table.reads;
    head.micro = static_cast<std::uint32_t>(frame.rows.size() * width);
    const Elements place = into.subspan(frame.rows.begin * width, frame.rows.size() * width);
    head.dest = mark_ && !place.empty() ? mark_(place.data()) : 0;
    out.push_back({{net::Role::server, static_cast<std::uint32_t>(frame.owner)}, head, payload_of(asked, frame.rows)});
  }
  own.missing = own.parts.size();
  if (flags != 0) ++table.reads;
}

void TableProtocol::push(std::size_t number, ConstElements gradients, Frames& out) {
  Table& table = tables_[number];
  const Lane& pulled = table.lanes[0];
  const std::size_t width = layout_.tables[number].width;
  check(pulled.missing == 0, "gradients of rows that are not here");
  for (const Part& part : pulled.parts) {
    FrameHeader head = header(number, part.frame, FrameType::rows_push, pulled.version);
    head.flags = FrameHeader::kWantAck;
    ++table.unacknowledged;
    out.push_back({{net::Role::server, static_cast<std::uint32_t>(part.frame.owner)},
                   head,
                   gradients.subspan(part.frame.rows.begin * width, part.frame.rows.size() * width).bytes()});
  }
}

void TableProtocol::push_keyed(std::size_t number, std::span<const RowFrame> frames,
                               std::span<const std::span<const std::byte>> payloads, std::uint64_t step, float lr,
                               Frames& out) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    FrameHeader head = header(number, frames[i], FrameType::rows_push, step);
    head.flags = FrameHeader::kWantAck | net::kUnpaired;
    head.micro = std::bit_cast<std::uint32_t>(lr);
    ++tables_[number].unacknowledged;
    out.push_back({{net::Role::server, static_cast<std::uint32_t>(frames[i].owner)}, head, payloads[i]});
  }
}

void TableProtocol::assign(std::size_t number, std::span<const RowFrame> frames,
                           std::span<const std::span<const std::byte>> payloads, Frames& out) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    FrameHeader head = header(number, frames[i], FrameType::rows_push, 0);
    head.dtype = DType::f32;
    head.flags = FrameHeader::kWantAck | net::kUnpaired | FrameHeader::kStartUp;
    ++tables_[number].unacknowledged;
    out.push_back({{net::Role::server, static_cast<std::uint32_t>(frames[i].owner)}, head, payloads[i]});
  }
}

void TableProtocol::list(std::size_t number, const RowFrame& piece, const std::uint64_t& first, std::size_t most,
                         Frames& out) {
  Table& table = tables_[number];
  FrameHeader head = header(number, piece, FrameType::rows_pull, 0);
  head.dtype = DType::f32;
  head.flags = net::kListed | FrameHeader::kStartUp;
  head.micro = static_cast<std::uint32_t>(most);
  table.list_bytes = most * (sizeof(std::uint64_t) + layout_.tables[number].width * sizeof(float));
  table.listed.reset();
  out.push_back(
      {{net::Role::server, static_cast<std::uint32_t>(piece.owner)}, head, std::as_bytes(std::span(&first, 1))});
}

void TableProtocol::on_message(const net::Message& message) {
  const FrameHeader& header = message.header;
  const auto refuse = [&](const char* what) {
    fail(ErrorKind::protocol, "{} {} [{}, {}) of table {}", to_string(header.sender()), what, header.begin, header.end,
         header.unit);
  };
  if (header.sender_role != net::Role::server || header.unit < layout_.units.size() ||
      header.unit - layout_.units.size() >= tables_.size())
    refuse("sent a frame for");
  const std::size_t number = header.unit - layout_.units.size();
  Table& table = tables_[number];
  if (header.type == FrameType::rows_ack) {
    if (table.unacknowledged == 0) refuse("acknowledges gradients that were not pushed, of");
    --table.unacknowledged;
    staleness_.sum += header.staleness;
    ++staleness_.updates;
    return;
  }
  const TableLayout& layout = layout_.tables[number];
  if (is_listed(header)) {
    const std::size_t each = sizeof(std::uint64_t) + layout.width * sizeof(float);
    if (table.list_bytes < message.payload.size() || message.payload.size() % each != 0 || table.listed)
      refuse("sent a list that was not asked for, of");
    table.listed.emplace(message.payload.begin(), message.payload.end());
    return;
  }
  Lane& own = lane(number, header.flags, header.version);
  const auto part =
      std::ranges::lower_bound(own.parts, header.begin, {}, [](const Part& p) { return p.frame.buckets.begin; });
  if (part == own.parts.end() || part->frame.buckets != header.range() || part->frame.owner != header.sender_rank ||
      !part->waiting)
    refuse("sent rows that were not asked for, of");
  const std::size_t rows = part->frame.rows.size();
  if (header.dtype != layout.type || header.version != own.version ||
      message.payload.size() != rows * layout.row_bytes())
    refuse("sent other rows than it was asked for, of");
  const Elements into = own.into.subspan(part->frame.rows.begin * layout.width, rows * layout.width);
  if (rows > 0 && message.payload.data() != into.data())
    std::memcpy(into.data(), message.payload.data(), message.payload.size());
  part->waiting = false;
  --own.missing;
}

}  // namespace psring::worker
