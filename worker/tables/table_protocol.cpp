#include <algorithm>
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
        const std::size_t marks = table.lookahead > 0 ? net::mark_bytes(cut - row) : 0;
        if ((cut - row) * row_bytes + marks > net::kMaxPayloadBytes)
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

/// The keys of a frame, with what travels behind them: their counts, or bits.
std::span<const std::byte> payload_of(const RowKeys& asked, Range rows, const net::Marks& marks) {
  const auto keys = std::as_bytes(asked.keys.subspan(rows.begin, rows.size()));
  if (asked.counts.empty() && asked.here.empty()) return keys;
  const auto behind = asked.here.empty() ? std::as_bytes(asked.counts.subspan(rows.begin, rows.size()))
                                         : std::as_bytes(std::span(marks));
  const std::size_t each = asked.here.empty() ? optim::key_bytes(true) : kKeyWithBits;
  const std::span<std::byte> out = asked.memory.subspan(rows.begin * each, keys.size() + behind.size());
  std::ranges::copy(behind, std::ranges::copy(keys, out.begin()).out);
  return out;
}

}  // namespace

TableProtocol::TableProtocol(const Layout& layout, Mark mark)
    : layout_(layout), mark_(std::move(mark)), tables_(layout.tables.size()) {
  for (std::size_t table = 0; table < tables_.size(); ++table)
    tables_[table].lanes.resize(1 + std::max<std::size_t>(2, layout.tables[table].lookahead + 1));
}

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

void TableProtocol::pull(std::size_t table, const RowKeys& asked, std::uint64_t version, Elements into, RowUse use,
                         Frames& out) {
  constexpr std::uint8_t kFlags[] = {0, net::kAhead, FrameHeader::kStartUp};
  ask(table, asked, version, into, kFlags[static_cast<std::size_t>(use)], out);
}

void TableProtocol::ask(std::size_t number, const RowKeys& asked, std::uint64_t version, Elements into,
                        std::uint8_t flags, Frames& out) {
  const TableLayout& layout = layout_.tables[number];
  Table& table = tables_[number];
  Lane& own = table.lanes[lane_of(number, version, (flags & FrameHeader::kStartUp) != 0)];
  check(own.missing == 0 && into.size() == asked.keys.size() * layout.width, "rows are pulled twice at once");
  own.into = into;
  own.version = version;
  own.parts.clear();
  const bool reads = (flags & (FrameHeader::kStartUp | net::kUnpaired)) != 0;
  const bool ahead = (flags & net::kAhead) != 0;
  if (!asked.here.empty()) flags |= net::kCached;
  for (const RowFrame& frame : cut_rows(layout, layout_.owners, asked.keys, optim::key_bytes(!asked.counts.empty()))) {
    const Range rows = frame.rows;
    Part& part = own.parts.emplace_back(Part{.frame = frame, .waiting = true, .ahead = ahead});
    if (!asked.here.empty()) part.marks = net::marks_of(asked.here.subspan(rows.begin, rows.size()));
    part.landed = net::count_of(part.marks);
    FrameHeader head = header(number, frame, FrameType::rows_pull, version);
    head.flags = flags;
    if (reads) head.step = table.reads;
    const std::size_t bytes =
        (rows.size() - part.landed) * layout.row_bytes() + (ahead ? net::mark_bytes(rows.size()) : 0);
    head.micro = static_cast<std::uint32_t>(bytes / size_bytes(layout.type));
    const std::size_t landing = layout.row_bytes() + (ahead ? sizeof(std::uint64_t) : 0);
    const std::byte* const place = (flags & (net::kAhead | net::kCached)) != 0
                                       ? asked.landing.data() + rows.begin * landing
                                       : into.subspan(rows.begin * layout.width, 0).data();
    head.dest = mark_ && bytes > 0 ? mark_(place) : 0;
    out.push_back(
        {{net::Role::server, static_cast<std::uint32_t>(frame.owner)}, head, payload_of(asked, rows, part.marks)});
  }
  own.missing = own.parts.size();
  if (reads) ++table.reads;
}

void TableProtocol::push(std::size_t number, std::uint64_t step, ConstElements gradients, net::Encoding encoding,
                         Frames& out) {
  Table& table = tables_[number];
  const Lane& pulled = table.lanes[lane_of(number, step, false)];
  const std::size_t rows = pulled.into.size() / layout_.tables[number].width;
  const std::size_t width = gradients.size() / std::max<std::size_t>(rows, 1);
  check(pulled.missing == 0 && pulled.version == step, "gradients of rows that are not here");
  for (const Part& part : pulled.parts) {
    FrameHeader head = header(number, part.frame, FrameType::rows_push, step);
    head.flags = FrameHeader::kWantAck;
    head.encoding = encoding;
    ++table.unacknowledged;
    out.push_back({{net::Role::server, static_cast<std::uint32_t>(part.frame.owner)},
                   head,
                   gradients.subspan(part.frame.rows.begin * width, part.frame.rows.size() * width).bytes()});
  }
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
    return;
  }
  const TableLayout& layout = layout_.tables[number];
  if (is_listed(header) && listener_) return listener_(number, message.payload);
  Lane& own = table.lanes[lane_of(number, header.version, (header.flags & FrameHeader::kStartUp) != 0)];
  const auto part =
      std::ranges::lower_bound(own.parts, header.begin, {}, [](const Part& p) { return p.frame.buckets.begin; });
  const bool first = is_ahead(header);  // of two parts
  if (part == own.parts.end() || part->frame.buckets != header.range() || part->frame.owner != header.sender_rank ||
      !part->waiting || (first && !part->ahead))
    refuse("sent rows that were not asked for, of");
  const std::size_t rows = part->frame.rows.size();
  const std::size_t marks = first ? net::mark_bytes(rows) : 0;
  if (header.dtype != layout.type || header.version != own.version || message.payload.size() < marks)
    refuse("sent other rows than it was asked for, of");
  if (part->ahead && !first && message.payload.empty() &&
      !part->last_came) {  // an outbox prefers frames without payload
    part->last_came = true;
    return;
  }
  if (first) {
    part->ahead = false;
    part->marks = net::read_marks(message.payload.first(marks), rows);
    part->landed = net::count_of(part->marks);
  } else if (part->ahead) {
    refuse("sent the second part of rows before the first, of");
  }
  const std::size_t here = first ? part->landed : rows - part->landed;
  if (part->landed > rows || message.payload.size() != marks + here * layout.row_bytes())
    refuse("sent other rows than it was asked for, of");
  const Elements into = own.into.subspan(part->frame.rows.begin * layout.width, rows * layout.width);
  if (!part->marks.empty())
    net::scatter(message.payload.subspan(marks), part->marks, first, into.bytes(), layout.row_bytes());
  else if (rows > 0 && message.payload.data() != into.data())
    std::memcpy(into.data(), message.payload.data(), message.payload.size());
  if (first && !part->last_came) return;
  if (part->last_came && part->landed != rows) refuse("sent other rows than it was asked for, of");
  part->waiting = false;
  --own.missing;
}

}  // namespace psring::worker
