#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/server/requests.h>
#include <psring/server/table_shard.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;

namespace {

constexpr std::size_t kMostReserved = std::size_t{1} << 46;  ///< addresses, which a process has 2^47 of

}  // namespace

std::size_t TableShard::piece_bytes(const TableLayout& table, std::size_t workers) {
  static_assert(std::is_nothrow_move_constructible_v<PulledFrame>,
                "keys and places of a waiting pull stay where they are");
  constexpr std::size_t kAllocated = 3 * 2 * sizeof(void*);  // beside a frame, its keys and their places
  const std::size_t step = sizeof(Pulled) + sizeof(PulledFrame) + sizeof(WaitingRows) + kAllocated;
  const std::size_t steps = std::bit_ceil(optim::kept_steps(table));  // as the lists grow
  return sizeof(Piece) + workers * (sizeof(std::vector<Pulled>) + steps * step);
}

TableShard::~TableShard() {
  ledger_.release(Category::communication, booked_);
  ledger_.release(Category::parameters, booked_old_);
}

void TableShard::open(const net::LayoutMessage& description) {
  const Layout& layout = description.layout;
  units_ = layout.units.size();
  owners_ = layout.owners;
  for (const TableLayout& table : layout.tables) {
    Table& own = tables_.emplace_back();
    own.layout = table;
    own.rule = &options_.row_rules->of(table.name);
    own.rows = std::make_unique<optim::TableRows>(
        optim::TableRows::Options{.number = tables_.size() - 1,
                                  .width = table.width,
                                  .init = table.init,
                                  .seed = description.seed,
                                  .rule = own.rule->rule.get(),
                                  .rules = own.rule->rows,
                                  .codec = own.rule->codec.get(),
                                  .most_bytes = std::min(options_.memory_bytes, kMostReserved / layout.tables.size())},
        ledger_);
    const Range owned = table_buckets(layout.owners, options_.rank);
    for (std::size_t piece = 0; piece < table.pieces; ++piece) {
      const Range buckets = table_piece(owned, table.pieces, piece);
      if (!buckets.empty())
        own.pieces.push_back({.number = own.pieces.size(),
                              .buckets = buckets,
                              .version = options_.first_version,
                              .workers = {},
                              .waiting = {},
                              .old = {}});
    }
    own.consistency = std::make_unique<Consistency>(options_.row_consistency);
    if (own.consistency->bound && !is_exact()) *own.consistency->bound += table.lookahead;
    own.clocks = std::make_unique<Clocks>(options_, *own.consistency);
    own.clocks->open(std::vector<bool>(own.pieces.size(), true));
    set_workers(own);
    if (!options_.keeps_old_rows) continue;
    ledger_.book(Category::parameters, optim::old_row_bytes(table, options_.workers));
    booked_old_ += optim::old_row_bytes(table, options_.workers);
  }
  book_keys();
}

/// Makes the lists and the memory of each worker.
void TableShard::set_workers(Table& table) {
  for (Piece& piece : table.pieces) piece.workers.resize(options_.workers);
  table.workers.resize(options_.workers);
  for (WorkerMemory& worker : table.workers) worker.lanes.resize(std::max<std::size_t>(3, table.layout.lookahead + 1));
}

/// Books the lists of keys of all workers, in place of those that were booked before.
void TableShard::book_keys() {
  ledger_.release(Category::communication, std::exchange(booked_, 0));
  for (const Table& table : tables_)
    booked_ += optim::key_list_bytes(table.layout, options_.workers, table.rule->rows.counts(), is_exact());
  ledger_.book(Category::communication, booked_);
}

std::optional<std::uint64_t> TableShard::version() const {
  std::optional<std::uint64_t> least;
  for (const Table& table : tables_)
    for (const Piece& piece : table.pieces) least = std::min(least.value_or(piece.version), piece.version);
  return least;
}

void TableShard::load_saved() {
  if (!options_.saved_rows) return;
  for (Table& table : tables_) options_.saved_rows(table.layout, table_buckets(owners_, options_.rank), *table.rows);
}

std::vector<optim::TablePart> TableShard::state() const {
  std::vector<optim::TablePart> parts;
  for (const Table& table : tables_)
    parts.push_back({&table.layout, table_buckets(owners_, options_.rank), table.rows.get()});
  return parts;
}

std::size_t TableShard::rows() const {
  std::size_t rows = 0;
  for (const Table& table : tables_) rows += table.rows->size();
  return rows;
}

TableShard::Table& TableShard::table_of(const FrameHeader& header) {
  if (header.unit < units_ || header.unit - units_ >= tables_.size())
    fail(ErrorKind::protocol, "a {} of table {}, which is none", to_string(header.type), header.unit);
  return tables_[header.unit - units_];
}

TableShard::Table& TableShard::find_table(const FrameHeader& header) {
  Table& table = table_of(header);
  const DType type = is_listed(header) || assigns(header) ? DType::f32 : table.layout.type;
  if (header.dtype != type)
    fail(ErrorKind::protocol, "rows of type {}, {} expected", name_of(header.dtype), name_of(type));
  const bool codes = header.type == FrameType::rows_push && !is_unpaired(header);
  if (const net::Encoding encoding = codes ? table.rule->encoding() : net::Encoding::dense; header.encoding != encoding)
    fail(ErrorKind::protocol, "a {} of table {} in encoding {}, {} expected", to_string(header.type), header.unit,
         static_cast<int>(header.encoding), static_cast<int>(encoding));
  if (is_ahead(header) &&
      (header.type != FrameType::rows_pull || only_reads(header) || !is_exact() || table.layout.lookahead == 0))
    fail(ErrorKind::protocol, "a {} ahead of table {}, whose rows are not pulled ahead", to_string(header.type),
         header.unit);
  if (is_cached(header) && (header.type != FrameType::rows_pull || only_reads(header) || is_exact() ||
                            !options_.row_consistency.bound || table.layout.lookahead > 0))
    fail(ErrorKind::protocol, "a {} of table {}, whose rows no worker keeps", to_string(header.type), header.unit);
  const optim::RowRules& rules = table.rule->rows;
  const bool bounded = !is_exact() && options_.row_consistency.bound;
  if (is_unpaired(header) && (bounded || rules.counts() || rules.sweeps() || table.rule->codec))
    fail(ErrorKind::protocol,
         "an unpaired {} of a table with ssp's bound, with encoded gradients, or whose rows are admitted or evicted",
         to_string(header.type));
  return table;
}

/// The piece that the frame's buckets lie in.
TableShard::Piece& TableShard::find_piece(Table& table, const FrameHeader& header) {
  for (Piece& piece : table.pieces)
    if (piece.buckets.contains(header.range()) && !header.range().empty()) return piece;
  fail(ErrorKind::protocol, "a {} of buckets [{}, {}), which are in no piece of this server", to_string(header.type),
       header.begin, header.end);
}

/// Reads and checks a frame's keys, and their occurrences if these are behind them.
TableShard::PulledFrame TableShard::read_keys(const Table& table, const Piece& piece, const FrameHeader& header,
                                              std::span<const std::byte> bytes, bool counted) const {
  const std::size_t count = bytes.size() / optim::key_bytes(counted);
  const std::size_t held = table.workers[header.sender_rank].keys;
  const std::size_t steps = optim::kept_steps(table.layout) + (is_unpaired(header) ? 1 : 0);
  if (count > steps * table.layout.most_keys - std::min(held, steps * table.layout.most_keys))
    fail(ErrorKind::protocol, "{} keys beside {} of one worker, at most {} in {} steps", count, held,
         steps * table.layout.most_keys, steps);
  if (count == 0 && header.range() != piece.buckets)
    fail(ErrorKind::protocol, "a {} without keys, of a part of a piece", to_string(header.type));
  PulledFrame pulled{header.range(), std::vector<std::uint64_t>(count), {}, {}, std::nullopt};
  std::vector<std::uint64_t>& keys = pulled.keys;
  if (count > 0) std::memcpy(keys.data(), bytes.data(), count * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bucket = optim::bucket_of(keys[i]);
    if (bucket < header.begin || bucket >= header.end || (i > 0 && keys[i - 1] >= keys[i]))
      fail(ErrorKind::protocol, "key {:#x} is out of order, or not in buckets [{}, {})", keys[i], header.begin,
           header.end);
  }
  if (!counted || count == 0) return pulled;
  pulled.counts.resize(count);
  std::memcpy(pulled.counts.data(), bytes.data() + count * sizeof(std::uint64_t), count * sizeof(std::uint32_t));
  if (std::ranges::count(pulled.counts, 0U) > 0) fail(ErrorKind::protocol, "a key that occurs 0 times");
  return pulled;
}

void TableShard::on_pull(const Message& message, Answers& answers) {
  const FrameHeader& header = message.header;
  Table& table = find_table(header);
  Piece& piece = find_piece(table, header);
  if (is_listed(header)) return list(table, piece, message, answers);
  const std::uint64_t at = due(table, piece, header.sender_rank);
  const bool old = is_old(piece, header);
  const bool reads = old || only_reads(header);
  const bool final = header.version == kFinalVersion && reads && options_.row_consistency.each_push_updates;
  // A program asks for the rows of its next step while others are in the step before.
  const std::uint64_t most_ahead = is_unpaired(header) ? 2 : std::max<std::uint64_t>(1, table.layout.lookahead);
  if (!final && !old && (header.version < at || header.version - at > most_ahead))
    fail(ErrorKind::protocol, "a pull of version {} of table {}, whose piece is at {}", header.version, header.unit,
         at);
  const bool counted = table.rule->rows.counts() && !only_reads(header);
  const std::size_t count = net::keys_in(message.payload.size(), optim::key_bytes(counted), is_cached(header));
  const auto keys = message.payload.first(count * optim::key_bytes(counted));
  net::Marks here = net::read_marks(message.payload.subspan(keys.size()), count);
  const std::size_t wanted = count - net::count_of(here);
  const std::size_t answered = wanted * table.layout.row_bytes() + (is_ahead(header) ? net::mark_bytes(count) : 0);
  if (header.micro * size_bytes(table.layout.type) != answered)
    fail(ErrorKind::protocol, "a pull of {} bytes of keys for {} values", message.payload.size(), header.micro);
  if (answered > net::kMaxPayloadBytes)
    fail(ErrorKind::protocol, "a pull of {} rows of {} bytes, which are more than a frame has", count,
         table.layout.row_bytes());
  if (!message.reply_space.empty() && message.reply_space.size() != answered)
    fail(ErrorKind::protocol, "space of {} bytes for {} rows", message.reply_space.size(), wanted);
  PulledFrame pulled = read_keys(table, piece, header, keys, counted);
  WorkerMemory& own = table.workers[header.sender_rank];
  if (follows_) {
    if (reads) return;
    keep(piece, header, at, std::move(pulled));
    own.keys += count;
    return;
  }
  // The rows that are read between two steps come while those of the steps ahead may be on their way.
  const std::uint64_t ahead = table.layout.lookahead;
  Lane& lane = own.lanes[is_unpaired(header) ? 1 + header.version % 2
                                             : (header.version + (only_reads(header) ? ahead : 0)) % (ahead + 1)];
  const bool begins = lane.batch_step != header.step || lane.batch_flags != header.flags;
  const std::size_t before = begins ? 0 : lane.rows;
  if (before + count > table.layout.most_keys)
    fail(ErrorKind::protocol, "{} keys of one batch, at most {} expected", before + count, table.layout.most_keys);
  // Keys bound the pulls that wait; a pull without keys has none.
  const auto same = [&](const WaitingRows& other) {
    return other.reads && other.keys.empty() && other.asked.sender() == header.sender() &&
           other.asked.version == header.version && other.asked.flags == header.flags;
  };
  if (reads && count == 0 && std::ranges::any_of(piece.waiting, same))
    fail(ErrorKind::protocol, "a second pull of version {} without keys, before the first is answered", header.version);
  WaitingRows pull{.asked = header,
                   .keys = {},
                   .own_keys = {},
                   .places = {},
                   .memory = message.reply_space,
                   .holder = message.reply_holder,
                   .reads = reads,
                   .ahead = is_ahead(header),
                   .late = {},
                   .here = std::move(here)};
  if (reads) {
    pull.own_keys = std::move(pulled.keys);
    pull.keys = pull.own_keys;
  } else {
    PulledFrame& kept = keep(piece, header, at, std::move(pulled));
    kept.places.resize(count, optim::RowIndex::kNoRow);
    pull.keys = kept.keys;
    pull.places = kept.places;
  }
  if (is_unpaired(header)) begin_unpaired(table);
  own.keys += count;
  lane.rows = before + count;
  lane.batch_step = header.step;
  lane.batch_flags = header.flags;
  if (pull.memory.empty() && answered > 0)
    pull.memory = answer_memory(table, own, lane, {before, before + count}).first(answered);
  piece.waiting.push_back(std::move(pull));
  answer(table, piece, answers);
}

/// The step whose gradients are due from the worker.
std::uint64_t TableShard::due(const Table& table, const Piece& piece, std::size_t worker) {
  return table.clocks->due(piece.number, worker, piece.version);
}

/// Keeps the keys of a worker's step until their gradients have been used. `first`: the step that is due if none is
/// kept.
TableShard::PulledFrame& TableShard::keep(Piece& piece, const FrameHeader& header, std::uint64_t first,
                                          PulledFrame pulled) {
  std::vector<Pulled>& lists = piece.workers[header.sender_rank];
  const bool continues = !lists.empty() && lists.back().next < piece.buckets.end;
  const std::uint64_t due = lists.empty() ? first : lists.back().step + (continues ? 0 : 1);
  const std::size_t next = continues ? lists.back().next : piece.buckets.begin;
  if (header.step != header.version || header.step != due || header.begin != next)
    fail(ErrorKind::protocol, "a {} of step {} from bucket {}, where step {} from bucket {} is due",
         to_string(header.type), header.step, header.begin, due, next);
  if (!continues) lists.push_back({.step = header.step, .frames = {}, .next = piece.buckets.begin, .lr = {}});
  Pulled& list = lists.back();
  list.next = header.end;
  return list.frames.emplace_back(std::move(pulled));
}

void TableShard::on_push(Message message, Answers& answers) {
  const FrameHeader header = message.header;
  Table& table = find_table(header);
  Piece& piece = find_piece(table, header);
  const auto acknowledge = [&] {
    if ((header.flags & FrameHeader::kWantAck) != 0)
      answers.push_back({header.sender(), answer_to(header, FrameType::rows_ack), {}});
  };
  if (assigns(header)) return assign(table, piece, message, answers);
  const std::uint64_t at = due(table, piece, header.sender_rank);
  if (header.step < at) return acknowledge();  // the update was made with it
  if (table.clocks->has_left(header.sender_rank))
    fail(ErrorKind::protocol, "gradients of rows from worker {}, which has left", header.sender_rank);
  if (is_unpaired(header)) return on_unpaired_push(table, piece, std::move(message), answers);
  std::vector<Pulled>& lists = piece.workers[header.sender_rank];
  if (header.step > at || lists.empty())
    fail(ErrorKind::protocol, "gradients of step {}, of rows that were not pulled at version {}", header.step, at);
  if (!table.consistency->answers(table.clocks->slowest(piece.number, piece.version), at))
    fail(ErrorKind::protocol, "gradients of step {}, of rows that were not answered yet", header.step);
  Pulled& list = lists.front();
  const auto frame = std::ranges::find(list.frames, header.range(), &PulledFrame::buckets);
  if (frame == list.frames.end())
    fail(ErrorKind::protocol, "gradients of buckets [{}, {}), which were pulled otherwise", header.begin, header.end);
  if (message.payload.size() != frame->keys.size() * table.rule->gradient_bytes(table.layout))
    fail(ErrorKind::protocol, "gradients of {} bytes for {} rows", message.payload.size(), frame->keys.size());
  if (frame->gradients) return;  // it is acknowledged with the first
  frame->gradients = std::move(message);
  ++list.pushed;
  use_pushes(table, piece, header.sender_rank, answers);
}

/// Makes the update that the last push of this worker completes, if it does.
void TableShard::use_pushes(Table& table, Piece& piece, std::size_t worker, Answers& answers) {
  if (is_exact()) {
    if (complete(piece)) update(table, piece, {0, piece.workers.size()}, answers);
  } else if (has_pushed(piece.workers[worker], piece)) {
    const Pulled& list = piece.workers[worker].front();
    const bool unpaired = list.lr.has_value();
    if (!unpaired) table.clocks->set_sent(piece.number, worker, list.sent);
    table.clocks->count_push(piece.number, worker, piece.version);
    if (unpaired) table.clocks->set_sent(piece.number, worker, kFinalVersion);  // the next push may follow no pull
    update(table, piece, {worker, worker + 1}, answers);
  }
}

void TableShard::leave(std::size_t worker, Answers& answers) {
  for (Table& table : tables_) {
    table.clocks->leave(worker);
    for (Piece& piece : table.pieces) answer(table, piece, answers);
  }
}

void TableShard::add_staleness(std::vector<StalenessRecord>& records) const {
  for (const Table& table : tables_) {
    const std::vector<StalenessRecord>& own = table.clocks->records();  // fewer if workers were lost before the layout
    for (std::size_t worker = 0; worker < std::min(records.size(), own.size()); ++worker)
      records[worker].merge(own[worker]);
  }
}

/// True once all of a worker's gradients of the step that is due are here.
bool TableShard::has_pushed(const std::vector<Pulled>& lists, const Piece& piece) {
  return !lists.empty() && lists.front().next == piece.buckets.end &&
         lists.front().pushed == lists.front().frames.size();
}

/// True once the gradients of all workers are here.
bool TableShard::complete(const Piece& piece) {
  return std::ranges::all_of(piece.workers, [&](const auto& own) { return has_pushed(own, piece); });
}

/// Makes an update with the gradients of some workers: all under bsp, one under ssp and asp.
void TableShard::update(Table& table, Piece& piece, Range workers, Answers& answers) {
  const std::uint32_t unit = static_cast<std::uint32_t>(units_ + static_cast<std::size_t>(&table - tables_.data()));
  if (options_.working) options_.working({.name = "update", .unit = unit, .step = piece.version});
  std::vector<std::vector<optim::RowGradients>> gradients(piece.workers.size());
  for (std::size_t worker = workers.begin; worker < workers.end; ++worker)
    for (const PulledFrame& frame : piece.workers[worker].front().frames) {
      const auto bytes = frame.gradients->payload.last(frame.keys.size() * table.rule->gradient_bytes(table.layout));
      gradients[worker].push_back({frame.keys, table.rule->gradients(table.layout, bytes), frame.counts, frame.places});
    }
  const std::uint64_t step = piece.version / (options_.workers / workers.size());
  const std::optional<float> lr = piece.workers[workers.begin].front().lr;
  table.rows->update({.count = piece.version + 1, .lr = lr ? *lr : options_.schedule->lr(table.rule->lr, step)},
                     gradients, 1.0F / static_cast<float>(workers.size()),
                     options_.keeps_old_rows ? &piece.old : nullptr);
  for (std::size_t worker = workers.begin; worker < workers.end; ++worker) {
    for (const PulledFrame& frame : piece.workers[worker].front().frames) {
      table.workers[worker].keys -= frame.keys.size();
      const FrameHeader& push = frame.gradients->header;
      if ((push.flags & FrameHeader::kWantAck) == 0) continue;
      FrameHeader taken = answer_to(push, FrameType::rows_ack);
      set_staleness(table.clocks->last(piece.number, worker), taken);
      answers.push_back({push.sender(), taken, {}});
    }
    piece.workers[worker].erase(piece.workers[worker].begin());
  }
  table.clocks->finish(piece.number);
  ++piece.version;
  piece.trained.reset();
  answer(table, piece, answers);
}

}  // namespace psring::server
