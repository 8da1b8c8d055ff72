// The answers to pulls of rows: whole, or in two parts where the next step is pulled ahead (net::kAhead).
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <psring/common/net/row_flags.h>
#include <psring/server/requests.h>
#include <psring/server/table_shard.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;

/// Answers the pulls that may be answered now. A worker's pull waits for its own pushes before it, except where it
/// pulls ahead; the first frame of a pull is answered first, so that its version says how stale the gradients are.
void TableShard::answer(Table& table, Piece& piece, Answers& answers) {
  const std::uint64_t slowest = table.clocks->slowest(piece.number, piece.version);
  std::vector<WaitingRows> waiting = std::exchange(piece.waiting, {});
  for (WaitingRows& pull : waiting) {
    const std::uint64_t wanted = pull.asked.version;
    const std::uint32_t worker = pull.asked.sender_rank;
    if (!table.consistency->answers(slowest, wanted) ||
        (wanted != kFinalVersion && due(table, piece, worker) + table.layout.lookahead < wanted)) {
      piece.waiting.push_back(std::move(pull));
      continue;
    }
    if (pull.ahead) answers.push_back(answer_early(table, piece, pull));
    answers.push_back(answer_to_pull(table, piece, pull));
    if (!pull.reads && pull.asked.begin == piece.buckets.begin)
      std::ranges::find(piece.workers[worker], wanted, &Pulled::step)->sent = piece.version;
    if (is_unpaired(pull.asked)) table.clocks->set_sent(piece.number, worker, piece.version);
    if (pull.reads) table.workers[worker].keys -= pull.keys.size();
  }
  for (WaitingRows& pull : piece.waiting)
    if (pull.ahead && knows_trained(piece)) answers.push_back(answer_early(table, piece, pull));
}

/// Memory of this server for rows of a worker's batch. The worker's next batch in it shows that they have come.
std::span<std::byte> TableShard::answer_memory(const Table& table, WorkerMemory& own, Lane& lane, Range rows) {
  const std::size_t bytes = optim::answer_bytes(table.layout, is_exact());
  const std::size_t each = bytes / table.layout.most_keys;
  if (lane.answers.size_bytes() == 0) {
    const std::size_t number = static_cast<std::size_t>(&lane - own.lanes.data());
    const bool paired = number <= table.layout.lookahead;  // then all of its lanes, however few keys a step has
    for (std::size_t i = paired ? 0 : number; i <= (paired ? table.layout.lookahead : number); ++i)
      own.lanes[i].answers = Buffer(bytes, Category::communication, ledger_);
  }
  return lane.answers.bytes().subspan(rows.begin * each, rows.size() * each);
}

/// True for a pull of the version before the piece's, by a worker that repeats a step in a new epoch.
bool TableShard::is_old(const Piece& piece, const FrameHeader& header) const {
  return options_.keeps_old_rows && !is_unpaired(header) && piece.version > options_.first_version &&
         header.version + 1 == piece.version;
}

net::Outgoing TableShard::answer_to_pull(const Table& table, const Piece& piece, WaitingRows& pull) const {
  FrameHeader header = answer_to(pull.asked, FrameType::rows);
  header.version = pull.asked.version;
  header.dtype = table.layout.type;
  header.flags &= static_cast<std::uint8_t>(~(net::kAhead | net::kCached));  // this is the second part, or all of it
  if (header.dest != 0) header.dest += pull.sent;
  std::vector<std::uint64_t> wanted;
  if (is_cached(pull.asked))
    for (std::size_t i = 0; i < pull.keys.size(); ++i)
      if (!net::is_marked(pull.here, i)) wanted.push_back(pull.keys[i]);
  std::span<const std::uint64_t> keys = pull.keys;
  if (is_cached(pull.asked)) keys = wanted;
  if (is_ahead(pull.asked)) keys = pull.late;
  return {pull.asked.sender(), header, read_rows(table, piece, pull, keys)};
}

/// Reads the rows of some of a pull's keys into the next part of its memory.
std::span<std::byte> TableShard::read_rows(const Table& table, const Piece& piece, WaitingRows& pull,
                                           std::span<const std::uint64_t> keys) const {
  const TableLayout& layout = table.layout;
  const std::span<std::byte> bytes = pull.memory.subspan(pull.sent, keys.size() * layout.row_bytes());
  pull.sent += bytes.size();
  const Elements out(bytes.data(), keys.size() * layout.width, layout.type);
  if (is_old(piece, pull.asked)) {
    table.rows->read_before(piece.old, keys, out);
  } else if (keys.size() == pull.keys.size()) {
    table.rows->read(keys, out, pull.places);
  } else {
    std::vector<std::uint32_t> places(keys.size());
    table.rows->read(keys, out, places);
    for (std::size_t i = 0, at = 0; i < keys.size(); ++i, ++at) {
      while (pull.keys[at] != keys[i]) ++at;
      pull.places[at] = places[i];
    }
  }
  return bytes;
}

/// True once every worker has pulled the step that the piece's next update makes.
bool TableShard::knows_trained(const Piece& piece) {
  return std::ranges::all_of(piece.workers, [&](const std::vector<Pulled>& lists) {
    return !lists.empty() && lists.front().step == piece.version && lists.front().next == piece.buckets.end;
  });
}

/// The keys that the piece's next update trains, ascending. REQUIRES: knows_trained.
const std::vector<std::uint64_t>& TableShard::trained_keys(Piece& piece) {
  if (piece.trained) return *piece.trained;
  std::vector<std::uint64_t> all;
  std::vector<std::uint64_t> own;
  std::vector<std::uint64_t> merged;
  for (const std::vector<Pulled>& lists : piece.workers) {
    own.clear();
    for (const PulledFrame& frame : lists.front().frames) own.insert(own.end(), frame.keys.begin(), frame.keys.end());
    merged.clear();
    std::ranges::set_union(all, own, std::back_inserter(merged));
    all.swap(merged);
  }
  return piece.trained.emplace(std::move(all));
}

/// The first part of an answer: the rows that do not change until the version that was asked for. Before a sweep, which
/// takes out rows that nobody trains, it has none.
net::Outgoing TableShard::answer_early(const Table& table, Piece& piece, WaitingRows& pull) const {
  std::vector<std::uint8_t> sent_early(pull.keys.size());
  std::vector<std::uint64_t> early;
  const bool changes = piece.version < pull.asked.version;
  const bool sweeps = changes && table.rule->rows.due(piece.version + 1);
  std::span<const std::uint64_t> trained;
  if (changes && !sweeps) trained = trained_keys(piece);
  auto next = std::ranges::lower_bound(trained, pull.keys.empty() ? 0 : pull.keys.front());
  for (std::size_t i = 0; i < pull.keys.size(); ++i) {
    const std::uint64_t key = pull.keys[i];
    while (next != trained.end() && *next < key) ++next;
    if (sweeps || (next != trained.end() && *next == key)) {
      pull.late.push_back(key);
    } else {
      sent_early[i] = 1;
      early.push_back(key);
    }
  }
  pull.ahead = false;
  const net::Marks marks = net::marks_of(sent_early);
  pull.sent = marks.size() * sizeof(std::uint64_t);
  if (!marks.empty()) std::memcpy(pull.memory.data(), marks.data(), pull.sent);
  read_rows(table, piece, pull, early);
  FrameHeader header = answer_to(pull.asked, FrameType::rows);
  header.version = pull.asked.version;
  header.dtype = table.layout.type;
  return {pull.asked.sender(), header, pull.memory.first(pull.sent)};
}

}  // namespace psring::server
