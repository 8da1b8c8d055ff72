// The rows of a shard between two steps: for a new membership epoch, and frame by frame for its follower.
#include <algorithm>
#include <cstring>
#include <span>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/server/table_shard.h>

namespace psring::server {

using net::FrameHeader;

namespace {

/// The part of a table's state that a frame holds, in header.micro, beside those of units (shard_state.cpp).
enum Part : std::uint32_t {
  kRecords = 0x100,    ///< records of any pieces; free ones count no update
  kPiece = 0x101,      ///< a piece's version
  kOldKeys = 0x102,    ///< of the piece's old rows
  kOldValues = 0x103,  ///< then their values
};

constexpr std::size_t kFrameBytes = std::size_t{1} << 20;

/// Appends frames with these bytes, which lie in the shard, cut at multiples of `each` bytes.
void append(net::Peer to, FrameHeader header, Part part, std::span<const std::byte> bytes, std::size_t each,
            std::vector<net::Outgoing>& out) {
  header.micro = part;
  const std::size_t most = std::max<std::size_t>(kFrameBytes / each, 1) * each;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(most, bytes.size())))
    out.push_back({to, header, bytes.first(std::min(most, bytes.size()))});
}

template <class T>
void extend(std::vector<T>& values, std::span<const std::byte> bytes) {
  const std::size_t before = values.size();
  values.resize(before + bytes.size() / sizeof(T));
  std::memcpy(values.data() + before, bytes.data(), bytes.size());
}

}  // namespace

void TableShard::begin_epoch() {
  follows_ = false;
  for (Table& table : tables_) {
    for (Piece& piece : table.pieces) {
      for (std::vector<Pulled>& lists : piece.workers) lists.clear();
      piece.waiting.clear();
      piece.trained.reset();
    }
    set_workers(table);
    for (WorkerMemory& worker : table.workers) {
      worker.keys = worker.pushed = 0;
      for (Lane& lane : worker.lanes) lane.rows = 0;
    }
  }
  book_keys();
}

void TableShard::snapshot(net::Peer to, Answers& out) const {
  FrameHeader header;
  header.type = net::FrameType::state;
  for (std::size_t number = 0; number < tables_.size(); ++number) {
    const Table& table = tables_[number];
    header.unit = static_cast<std::uint32_t>(units_ + number);
    header.set_range(table_buckets(owners_, options_.rank));
    const optim::RecordMemory& records = table.rows->records();
    append(to, header, kRecords, records.records(0, records.used()), records.stride(), out);
    for (const Piece& piece : table.pieces) {
      header.set_range(piece.buckets);
      header.version = piece.version;
      header.micro = kPiece;
      out.push_back({to, header, {}});
      append(to, header, kOldKeys, std::as_bytes(std::span(piece.old.keys)), sizeof(std::uint64_t), out);
      append(to, header, kOldValues, std::as_bytes(std::span(piece.old.values)), sizeof(float), out);
    }
  }
}

bool TableShard::has_state(const FrameHeader& header) { return header.micro >= kRecords; }

void TableShard::restore(const net::Message& message) {
  const FrameHeader& header = message.header;
  Table& table = table_of(header);
  const std::span<const std::byte> bytes = message.payload;
  const auto refuse = [&] {
    fail(ErrorKind::protocol, "{} bytes of state {} of table {}, version {}, which cannot be", bytes.size(),
         header.micro, header.unit, header.version);
  };
  if (header.micro == kRecords) {
    const Range owned = table_buckets(owners_, options_.rank);
    const std::size_t stride = table.rows->records().stride();
    if (bytes.size() % stride != 0) refuse();
    for (std::size_t at = 0; at < bytes.size(); at += stride) {
      optim::RecordHeader record;
      std::memcpy(&record, bytes.data() + at, sizeof record);
      if (record.updates == 0) continue;  // free
      if (const std::size_t bucket = optim::bucket_of(record.key); bucket < owned.begin || bucket >= owned.end)
        refuse();
      table.rows->insert(bytes.subspan(at, table.rows->record_bytes()));
    }
    return;
  }
  Piece& piece = find_piece(table, header);
  if (header.range() != piece.buckets || header.version < options_.first_version) refuse();
  optim::OldRows& old = piece.old;
  const std::size_t most = options_.workers * table.layout.most_keys;
  if (header.micro == kPiece && bytes.empty()) {
    piece.version = header.version;
    old.clear();
  } else if (header.micro == kOldKeys && bytes.size() % sizeof(std::uint64_t) == 0 &&
             old.keys.size() + bytes.size() / sizeof(std::uint64_t) <= most) {
    extend(old.keys, bytes);
  } else if (header.micro == kOldValues && bytes.size() % sizeof(float) == 0 &&
             old.values.size() + bytes.size() / sizeof(float) <= old.keys.size() * table.layout.width) {
    extend(old.values, bytes);
  } else {
    refuse();
  }
}

}  // namespace psring::server
