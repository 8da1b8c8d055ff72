#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/layout_message.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/worker/programs/table_client.h>
#include <psring/worker/tables/table_setup.h>

namespace psring::worker {
namespace {

/// Frames with their payloads in one memory: a frame's keys, and then its values.
struct Payloads {
  std::vector<RowFrame> frames;
  Buffer memory;
  std::vector<std::span<const std::byte>> parts;
};

/// Copies the keys, which are those of one table, and their values from f32 into frames to the table's owners.
Payloads make_payloads(const TableLayout& table, std::size_t owners, std::span<const std::uint64_t> keys,
                       std::span<const float> values, MemoryLedger& memory, Arena& arena) {
  const std::size_t width = table.width;
  const std::size_t each = sizeof(std::uint64_t) + table.row_bytes();
  const auto place = [&](const RowFrame& frame) { return round_up(frame.rows.size() * each, Arena::kAlignment); };
  std::vector<RowFrame> frames = cut_rows(table, owners, keys);
  std::size_t bytes = Arena::kAlignment;
  for (const RowFrame& frame : frames) bytes += place(frame);
  Payloads made{std::move(frames), Buffer(bytes, Category::communication, memory, &arena), {}};
  std::size_t at = 0;
  for (const RowFrame& frame : made.frames) {
    const std::span<std::byte> part = made.memory.bytes().subspan(at, frame.rows.size() * each);
    const std::span<const std::uint64_t> own = keys.subspan(frame.rows.begin, frame.rows.size());
    if (!own.empty()) std::memcpy(part.data(), own.data(), own.size_bytes());
    convert(values.subspan(frame.rows.begin * width, frame.rows.size() * width),
            Elements(part.data() + own.size_bytes(), frame.rows.size() * width, table.type));
    made.parts.push_back(part);
    at += place(frame);
  }
  return made;
}

/// A call of `list`: others wait until it returns.
struct ListingTurn {
  std::atomic<bool>& taken;
  bool mine = false;

  bool take() { return mine = mine || !taken.exchange(true); }
  ~ListingTurn() {
    if (mine) taken = false;
  }
};

}  // namespace

TableClient::TableClient(Membership& member, Arena& arena) : member_(member), arena_(arena) {
  check_program_tables(member.job());
  layout_.owners = member.job().servers;
}

std::size_t TableClient::add(TableLayout layout) {
  const MutexLock lock(opening_);
  if (servers_) fail(ErrorKind::usage, "the tables have started: open table '{}' before", layout.name);
  if (layout.name.empty()) fail(ErrorKind::usage, "a table without a name");
  for (const TableLayout& other : layout_.tables)
    if (other.name == layout.name) fail(ErrorKind::usage, "two tables are named '{}'", layout.name);
  Layout all = layout_;
  all.tables.push_back(std::move(layout));
  try {
    net::decode_layout(net::encode(net::LayoutMessage{all, 0, false}));
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}", error.what());
  }
  layout_ = std::move(all);
  return layout_.tables.size() - 1;
}

std::uint64_t TableClient::start() {
  const MutexLock lock(opening_);
  if (started_) fail(ErrorKind::usage, "the tables were started already");
  if (layout_.tables.empty()) fail(ErrorKind::usage, "no table was opened");
  if (!servers_) {  // a start that failed before has latched its error
    tables_ = std::vector<Table>(layout_.tables.size());
    servers_.emplace(member_, layout_, ServerAccess::options(member_, arena_));
  }
  return servers_->locked([&] {
    if (!rows_) rows_.emplace(servers_->client());
    servers_->client().open(member_.job().seed);
    step_ = servers_->client().version();
    started_ = true;
    return step_;
  });
}

void TableClient::check_started() const {
  if (!started_) fail(ErrorKind::usage, "the tables were not started");
}

/// The finder of different keys, for batches of so many.
UniqueKeys& TableClient::unique(std::size_t keys) {
  if (!unique_ || unique_most_ < keys) {
    unique_most_ = std::max<std::size_t>(keys + keys / 2, 1024);
    unique_.emplace(unique_most_);
  }
  return *unique_;
}

/// Makes room for the rows of a batch of keys.
std::shared_ptr<FetchedRows> TableClient::make_rows(std::size_t table, std::span<const std::uint64_t> keys,
                                                    std::uint64_t version) {
  check_started();
  const TableLayout& layout = layout_.tables[table];
  if (keys.size() > std::numeric_limits<std::uint32_t>::max())
    fail(ErrorKind::usage, "{} keys of table '{}' at once", keys.size(), layout.name);
  std::vector<std::uint64_t> hashed(keys.size());
  std::ranges::transform(keys, hashed.begin(), optim::mix64);
  std::vector<std::uint64_t> different(keys.size());
  std::vector<std::uint32_t> places(keys.size());
  servers_->locked([&] { different.resize(unique(keys.size()).find(hashed, different, places)); });
  if (different.size() > layout.most_keys)
    fail(ErrorKind::usage, "{} different keys of table '{}', at most most_keys = {} were declared", different.size(),
         layout.name, layout.most_keys);
  return std::make_shared<FetchedRows>(table, layout, version, different, places, member_.memory(), arena_);
}

std::shared_ptr<FetchedRows> TableClient::fetch(std::size_t table, std::span<const std::uint64_t> keys,
                                                std::uint64_t version) {
  const auto rows = make_rows(table, keys, version);
  servers_->locked([&] {
    if (version != step_ && version != step_ + 1)
      fail(ErrorKind::usage, "rows of table '{}' in version {}, in step {}", layout_.tables[table].name, version,
           step_);
    tables_[table].lanes[version % 2].push_back(rows);
    predicted_.sent += rows->size() * sizeof(std::uint64_t);
    predicted_.received += rows->size() * layout_.tables[table].row_bytes();
    advance(table);
  });
  return rows;
}

/// Takes what has arrived, and sends the fetches that waited for others. REQUIRES: under the lock.
void TableClient::advance(std::size_t table) {
  Table& own = tables_[table];
  for (auto& lane : own.lanes)
    while (!lane.empty()) {
      FetchedRows& first = *lane.front();
      if (!first.sent_) {
        rows_->fetch(table, first.keys(), first.version(), first.travelling());
        first.sent_ = true;
      }
      if (!rows_->fetched(table, first.version())) break;
      first.set_arrived();
      lane.pop_front();
    }
  if (!own.sends.empty() && rows_->acknowledged(table)) own.sends.clear();
}

bool TableClient::wait(const FetchedRows& rows, Moment until) {
  if (rows.arrived()) return true;
  return servers_->wait_until(
      [&] {
        advance(rows.table());
        return rows.arrived();
      },
      until);
}

/// The memory of the rows' gradients; the first gradient lists the rows. Throws usage if the arena has no room, and
/// lists nothing then. REQUIRES: under the lock.
std::span<float> TableClient::gradients_of(const std::shared_ptr<FetchedRows>& rows) {
  const bool first = rows->gradients_.size_bytes() == 0;
  const std::span<float> gradients = rows->gradients();
  if (first) tables_[rows->table()].graded.push_back(rows);
  return gradients;
}

void TableClient::add(const std::shared_ptr<FetchedRows>& rows, const Bags& bags, std::span<const float> gradients) {
  bags.check(rows->size());
  const std::size_t width = rows->width();
  servers_->locked([&] {
    float* const into = gradients_of(rows).data();
    for (std::size_t bag = 0; bag < bags.size(); ++bag) {
      const float* const gradient = gradients.data() + bag * width;
      const Range lookups = bags.lookups(bag);
      const float factor = bags.mean ? 1.0F / static_cast<float>(std::max<std::size_t>(lookups.size(), 1)) : 1.0F;
      for (std::size_t at = lookups.begin; at < lookups.end; ++at) {
        const auto place = static_cast<std::size_t>(bags.places[at]);
        const float weight = bags.weights.empty() ? factor : factor * bags.weights[at];
        float* const row = into + place * width;
        rows->touched_[place] = 1;
#pragma GCC ivdep
        for (std::size_t i = 0; i < width; ++i) row[i] += weight * gradient[i];
      }
    }
  });
}

void TableClient::add(const std::shared_ptr<FetchedRows>& rows, std::span<const float> gradients) {
  const std::size_t width = rows->width();
  servers_->locked([&] {
    const std::span<float> into = gradients_of(rows);
    for (std::size_t row = 0; row < rows->size(); ++row) {
      const std::span<const float> from = gradients.subspan(row * width, width);
      if (std::ranges::all_of(from, [](float value) { return value == 0; })) continue;
      rows->touched_[row] = 1;
      for (std::size_t i = 0; i < width; ++i) into[row * width + i] += from[i];
    }
  });
}

void TableClient::add(std::size_t table, std::span<const std::uint64_t> keys, std::span<const float> gradients) {
  const auto rows = make_rows(table, keys, 0);
  add(rows, Bags{.places = rows->places()}, gradients);
}

void TableClient::drop() {
  check_started();
  servers_->locked([&] { clear(); });
}

void TableClient::clear() {
  for (Table& table : tables_) {
    for (const auto& rows : table.graded) {
      rows->gradients_ = {};
      std::ranges::fill(rows->touched_, std::uint8_t{0});
    }
    table.graded.clear();
  }
}

/// The keys of all rows with gradients, and the sums of their gradients in the order in which their batches got the
/// first one. A step mostly has one batch of each table, which needs no merging.
TableClient::Merged TableClient::merge(std::size_t number) {
  const std::size_t width = layout_.tables[number].width;
  const auto& graded = tables_[number].graded;
  if (graded.size() == 1 && std::ranges::find(graded.front()->touched_, 0) == graded.front()->touched_.end())
    return {graded.front()->keys(), graded.front()->gradients()};
  std::vector<std::uint64_t> all;
  for (const auto& rows : graded)
    for (std::size_t row = 0; row < rows->size(); ++row)
      if (rows->touched_[row] != 0) all.push_back(rows->keys()[row]);
  std::vector<std::uint64_t> keys(all.size());
  std::vector<std::uint32_t> places(all.size());
  keys.resize(unique(all.size()).find(all, keys, places));
  std::vector<float> sums(keys.size() * width);
  std::size_t at = 0;
  for (const auto& rows : graded)
    for (std::size_t row = 0; row < rows->size(); ++row) {
      if (rows->touched_[row] == 0) continue;
      float* const into = sums.data() + places[at++] * width;
      const float* const from = rows->gradients().data() + row * width;
      for (std::size_t i = 0; i < width; ++i) into[i] += from[i];
    }
  Merged merged{.keys = {}, .gradients = {}, .memory = {std::move(keys), std::move(sums)}};
  merged.keys = merged.memory.keys;
  merged.gradients = merged.memory.gradients;
  return merged;
}

bool TableClient::idle() {
  for (std::size_t table = 0; table < tables_.size(); ++table) {
    advance(table);
    if (!tables_[table].lanes[step_ % 2].empty() || !rows_->acknowledged(table)) return false;
  }
  return true;
}

bool TableClient::wait_idle(Moment until) {
  check_started();
  return servers_->wait_until([&] { return idle(); }, until);
}

void TableClient::end_step(double lr) {
  check_started();
  if (!(lr >= 0 && lr <= std::numeric_limits<float>::max()))
    fail(ErrorKind::usage, "a step with the learning rate {}", lr);
  servers_->locked([&] {
    if (!idle()) fail(ErrorKind::usage, "a step ends before the one before it has: wait for that first");
    std::vector<Merged> merged;
    std::vector<Payloads> sent;  // all made before the first leaves: without room no table has a part of the step
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      const TableLayout& layout = layout_.tables[table];
      const Merged& sums = merged.emplace_back(merge(table));
      if (sums.keys.size() > layout.most_keys)
        fail(ErrorKind::usage,
             "gradients of {} different keys of table '{}' in one step, at most most_keys = {} were declared",
             sums.keys.size(), layout.name, layout.most_keys);
      sent.push_back(make_payloads(layout, layout_.owners, sums.keys, sums.gradients, member_.memory(), arena_));
    }
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      rows_->push(table, sent[table].frames, sent[table].parts, step_, static_cast<float>(lr));
      tables_[table].sends.push_back(std::move(sent[table].memory));
      predicted_.sent += merged[table].keys.size() * (sizeof(std::uint64_t) + layout_.tables[table].row_bytes());
    }
    clear();
    ++step_;
  });
}

void TableClient::assign(std::size_t number, std::span<const std::uint64_t> keys, std::span<const float> values) {
  check_started();
  if (member_.rank() != 0) fail(ErrorKind::usage, "rank 0 gives the values of rows");
  TableLayout layout = layout_.tables[number];
  layout.type = DType::f32;
  if (keys.size() > layout.most_keys)
    fail(ErrorKind::usage, "{} keys of table '{}', at most most_keys = {} at once", keys.size(), layout.name,
         layout.most_keys);
  const auto rows = make_rows(number, keys, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto place = static_cast<std::size_t>(rows->places()[i]);
    if (std::exchange(rows->touched_[place], 1) != 0)
      fail(ErrorKind::usage, "key {} of table '{}' is given twice", keys[i], layout.name);
    std::ranges::copy(values.subspan(i * layout.width, layout.width),
                      rows->gradients().subspan(place * layout.width).begin());
  }
  Payloads sent = make_payloads(layout, layout_.owners, rows->keys(), rows->gradients(), member_.memory(), arena_);
  servers_->locked([&] {
    if (!idle()) fail(ErrorKind::usage, "rows get values before the step before has ended: wait for that first");
    rows_->assign(number, sent.frames, sent.parts);
    tables_[number].sends.push_back(std::move(sent.memory));
  });
}

/// The piece with a hashed key, and its owner.
RowFrame TableClient::piece_of(std::size_t number, std::uint64_t hashed) const {
  const TableLayout& layout = layout_.tables[number];
  for (std::size_t owner = 0; owner < layout_.owners; ++owner)
    for (std::size_t piece = 0; piece < layout.pieces; ++piece) {
      const Range buckets = table_piece(table_buckets(layout_.owners, owner), layout.pieces, piece);
      if (buckets.begin <= optim::bucket_of(hashed) && optim::bucket_of(hashed) < buckets.end)
        return {owner, buckets, {}};
    }
  fail(ErrorKind::bug, "key {:#x} of table '{}' has no owner", hashed, layout.name);
}

bool TableClient::list(std::size_t number, std::uint64_t& cursor, std::span<std::uint64_t> keys,
                       std::span<float> values, std::size_t& count, Moment until) {
  check_started();
  if (keys.empty()) fail(ErrorKind::usage, "a list of at most 0 rows");
  const std::size_t width = layout_.tables[number].width;
  const std::size_t each = sizeof(std::uint64_t) + width * sizeof(float);
  Table& own = tables_[number];
  constexpr std::uint64_t kEnd = std::numeric_limits<std::uint64_t>::max();
  ListingTurn turn{own.listing};
  const auto ask = [&] {
    own.list_from = cursor;
    own.list_most = std::min({keys.size(), layout_.tables[number].most_keys, (std::size_t{1} << 20) / each + 1});
    rows_->list(number, piece_of(number, cursor), *own.list_from, own.list_most);
  };
  count = 0;
  return servers_->wait_until(
      [&] {
        if (!turn.take()) return false;
        const auto& answer = rows_->listed(number);
        if (own.list_from && (*own.list_from != cursor || keys.size() < own.list_most)) {
          if (!answer) return false;  // a call that was not repeated has asked for it
          own.list_from.reset();
        }
        if (!own.list_from) {
          if (cursor == kEnd && own.listed) return true;
          ask();
        }
        if (!answer) return false;
        count = answer->size() / each;
        if (count > 0) {
          std::memcpy(keys.data(), answer->data(), count * sizeof(std::uint64_t));
          std::memcpy(values.data(), answer->data() + count * sizeof(std::uint64_t), count * width * sizeof(float));
        }
        const std::size_t end = piece_of(number, *own.list_from).buckets.end;
        const bool ends = count < own.list_most;
        const std::uint64_t next = ends ? std::uint64_t{end} << 44 : keys[count - 1] + 1;
        own.listed = next == 0;  // it has come round
        cursor = own.listed ? kEnd : next;
        std::ranges::transform(keys.first(count), keys.begin(), optim::unmix64);
        own.list_from.reset();
        if (count > 0 || own.listed) return true;
        ask();
        return false;
      },
      until);
}

TableClient::Moved TableClient::moved() const {
  using Direction = ByteLedger::Direction;
  const ByteLedger& bytes = member_.bytes();
  return {.sent = bytes.total(Direction::sent, "rows_pull").payload + bytes.total(Direction::sent, "rows_push").payload,
          .received = bytes.total(Direction::received, "rows").payload};
}

TableClient::Moved TableClient::predicted() {
  check_started();
  return servers_->locked([&] { return predicted_; });
}

}  // namespace psring::worker
