#include <algorithm>
#include <cstring>
#include <utility>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/occurrences.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>

namespace psring::optim {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kRowsAhead = 16;

/// Walks through the keys of one worker, list by list.
class Cursor {
 public:
  /// `width`: elements of a row's gradient, as it travels. `codec`: decodes them; null: they are values.
  Cursor(const std::vector<RowGradients>& lists, std::size_t width, const Codec* codec)
      : lists_(lists), width_(width), codec_(codec) {
    skip_empty();
  }
  bool done() const { return list_ == lists_.size(); }
  std::uint64_t key() const { return lists_[list_].keys[at_]; }
  /// Returns the gradient's values: where they are, or decoded or widened into `space`.
  const float* gradient(std::span<float> space) const {
    const ConstElements& all = lists_[list_].gradients;
    const std::byte* const at = all.data() + at_ * width_ * size_bytes(all.type());
    if (codec_ == nullptr && all.type() == DType::f32) return reinterpret_cast<const float*>(at);
    const ConstElements own(at, width_, all.type());
    if (codec_ != nullptr)
      codec_->decode(own, {}, Elements(space));
    else
      convert(own, Elements(space));
    return space.data();
  }
  std::uint32_t count() const { return lists_[list_].counts.empty() ? 1 : lists_[list_].counts[at_]; }
  std::uint32_t place() const { return lists_[list_].places.empty() ? RowIndex::kNoRow : lists_[list_].places[at_]; }
  /// Begins to fetch the gradients of a later key: another processor has written them.
  void prefetch() const {
    const ConstElements all = lists_[list_].gradients;
    const std::size_t row_bytes = width_ * size_bytes(all.type());
    const std::byte* const row = all.data() + (at_ + kRowsAhead) * row_bytes;
    for (std::size_t byte = 0; byte < row_bytes; byte += kLine) __builtin_prefetch(row + byte);
  }
  void next() {
    if (++at_ < lists_[list_].keys.size()) return;
    ++list_;
    at_ = 0;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (!done() && lists_[list_].keys.empty()) ++list_;
  }

  const std::vector<RowGradients>& lists_;
  const std::size_t width_;
  const Codec* const codec_;
  std::size_t list_ = 0;
  std::size_t at_ = 0;
};

/// Writes what `of` makes of each value. Rows are short: calls of memcpy, and tests for overlap, would take most of the
/// time. REQUIRES: `from` and `to` are equal, or do not overlap.
inline void transform(const float* from, std::size_t count, float* to, const auto& of) {
#pragma GCC ivdep
  for (std::size_t at = 0; at < count; ++at) to[at] = of(from[at]);
}
inline void copy_floats(const float* from, std::size_t count, float* to) {
  transform(from, count, to, [](float value) { return value; });
}
inline void add_floats(const float* from, std::size_t count, float* sum) {
#pragma GCC ivdep
  for (std::size_t at = 0; at < count; ++at) sum[at] += from[at];
}

}  // namespace

void initial_row(const Init& init, std::uint64_t seed, std::size_t table, std::uint64_t key, std::span<float> out) {
  const CounterRng rng({.seed = seed,
                        .purpose = Purpose::rows,
                        .tensor = static_cast<std::uint32_t>(table),
                        .step = static_cast<std::uint32_t>(key),
                        .micro = static_cast<std::uint16_t>(key >> 48),
                        .rank = static_cast<std::uint16_t>(key >> 32)});
  initialise(init, rng, 0, out);
}

RecordMemory::Sizes TableRows::record_sizes(std::size_t width, const RowRule& rule) {
  return {.values = width, .state = rule.state_floats(width)};
}

std::size_t TableRows::scratch_bytes(std::size_t width) { return (kAtOnce + 1) * width * sizeof(float); }

TableRows::TableRows(const Options& options, MemoryLedger& ledger)
    : options_(options),
      ledger_(ledger),
      index_(ledger),
      records_(record_sizes(options.width, *options.rule), options.most_bytes, ledger),
      scratch_(scratch_bytes(options.width), Category::gradients, ledger),
      gradients_(scratch_.as<float>().first(kAtOnce * options.width)),
      other_(scratch_.as<float>().last(options.width)),
      rows_(kAtOnce) {
  keys_.reserve(kAtOnce);
  counts_.reserve(kAtOnce);
  if (options.rules.admits()) counters_ = std::make_unique<RowCounters>(options.rules, options.most_bytes, ledger);
}

void TableRows::read(std::span<const std::uint64_t> keys, Elements out, std::span<std::uint32_t> places) const {
  const std::size_t width = options_.width;
  check(out.size() == keys.size() * width, "{} values for {} rows of {}", out.size(), keys.size(), width);
  // Two parts take turns: the rows of one are fetched while the places of the next are searched for.
  std::uint32_t found[2 * kAtOnce];
  const auto part_at = [&](std::size_t begin) {
    return keys.subspan(begin, std::min(kAtOnce, keys.size() - std::min(begin, keys.size())));
  };
  const auto find = [&](std::size_t begin) {
    const auto part = begin < keys.size() ? part_at(begin) : std::span<const std::uint64_t>();
    const std::span<std::uint32_t> rows(found + begin % (2 * kAtOnce), part.size());
    index_.find(part, rows);
    for (const std::uint32_t row : rows)
      if (row != RowIndex::kNoRow) records_.prefetch(row);
  };
  std::vector<float> initial(width);
  find(0);
  for (std::size_t begin = 0; begin < keys.size(); begin += kAtOnce) {
    find(begin + kAtOnce);
    const auto part = part_at(begin);
    const std::span<const std::uint32_t> rows(found + begin % (2 * kAtOnce), part.size());
    if (!places.empty()) std::ranges::copy(rows, places.begin() + static_cast<std::ptrdiff_t>(begin));
    for (std::size_t i = 0; i < part.size(); ++i) {
      const Elements to = out.subspan((begin + i) * width, width);
      for (std::size_t byte = 0; byte < to.size_bytes(); byte += kLine)
        __builtin_prefetch(to.data() + kRowsAhead * to.size_bytes() + byte, 1);
      if (rows[i] == RowIndex::kNoRow) {
        if (!options_.rules.zero) initial_row(options_.init, options_.seed, options_.number, part[i], initial);
        convert(initial, to);
      } else if (to.type() == DType::f32) {
        copy_floats(records_.values(rows[i]), width, reinterpret_cast<float*>(to.data()));
      } else {
        convert(std::span<const float>(records_.values(rows[i]), width), to);
      }
    }
  }
}

void TableRows::read_before(const OldRows& old, std::span<const std::uint64_t> keys, Elements out) const {
  const std::size_t width = options_.width;
  read(keys, out);
  auto at = old.keys.begin();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    at = std::lower_bound(at, old.keys.end(), keys[i]);
    if (at == old.keys.end()) return;
    if (*at != keys[i]) continue;
    const auto place = static_cast<std::size_t>(at - old.keys.begin()) * width;
    convert(std::span(old.values).subspan(place, width), out.subspan(i * width, width));
  }
}

void TableRows::update(const Update& update, std::span<const std::vector<RowGradients>> workers, float factor,
                       OldRows* old) {
  const std::size_t width = options_.width;
  check(old == nullptr || !(options_.rules.sweeps() || options_.rules.admits()),
        "old rows of a table whose rows are admitted or leave");
  if (old != nullptr) old->clear();
  std::vector<Cursor> cursors;
  const std::size_t travels = options_.codec == nullptr ? width : options_.codec->bytes(width);
  for (const auto& lists : workers) cursors.emplace_back(lists, travels, options_.codec);
  if (old != nullptr) {  // at once: a vector that grows takes twice the memory that is booked
    std::size_t most = 0;
    for (const auto& lists : workers)
      for (const RowGradients& list : lists) most += list.keys.size();
    old->keys.reserve(most);
    old->values.reserve(most * width);
  }
  for (;;) {
    std::uint64_t least = 0;
    bool any = false;
    for (const Cursor& cursor : cursors)
      if (!cursor.done() && (!any || cursor.key() < least)) {
        least = cursor.key();
        any = true;
      }
    if (!any) break;
    const std::span<float> sum = gradients_.subspan(keys_.size() * width, width);
    std::uint32_t count = 0;
    std::uint32_t place = RowIndex::kNoRow;
    const float* total = nullptr;  // of the workers so far
    for (Cursor& cursor : cursors) {
      if (cursor.done() || cursor.key() != least) continue;
      cursor.prefetch();
      if (total == nullptr) {
        total = cursor.gradient(sum);
        place = cursor.place();
      } else {
        if (total != sum.data()) copy_floats(std::exchange(total, sum.data()), width, sum.data());
        add_floats(cursor.gradient(other_), width, sum.data());
      }
      count = add_occurrences(count, cursor.count());
      cursor.next();
    }
    transform(total, width, sum.data(), [factor](float value) { return value * factor; });
    if (place < records_.used()) records_.prefetch(place);
    rows_[keys_.size()] = place;
    keys_.push_back(least);
    counts_.push_back(options_.rules.counts() ? count : 1);
    if (keys_.size() == kAtOnce) apply(update, old);
  }
  if (!keys_.empty()) apply(update, old);
  if (options_.rules.due(update.count)) sweep(update.count);
}

void TableRows::sweep(std::uint64_t updates) {
  const std::vector<std::uint32_t> order = in_order();
  const auto group_at = [&](std::size_t at) { return bucket_of(records_.header(order[at]).key) / kCut; };
  std::vector<std::uint64_t> left;
  std::vector<RowAge> own;
  for (std::size_t at = 0; at < order.size();) {
    const std::size_t group = group_at(at);
    own.clear();
    for (; at < order.size() && group_at(at) == group; ++at) {
      const RecordHeader& header = records_.header(order[at]);
      own.push_back({header.key, header.updates, header.last, order[at]});
    }
    for (const RowAge& row : std::span(own).first(choose_leaving(options_.rules, updates, group, own))) {
      left.push_back(row.key);
      records_.remove(row.row);
    }
  }
  index_.erase(left);
  order_ = {};
  if (counters_) counters_->sweep(updates, index_);
}

/// Finds the rows of keys_. A place in rows_ is right if the record there has the key: else the row is new, or it has
/// left, or another worker has made it since.
void TableRows::find_rows() {
  std::uint64_t keys[kAtOnce];
  std::uint32_t rows[kAtOnce];
  std::size_t places[kAtOnce];
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (records_.holds(rows_[i], keys_[i])) continue;
    keys[unknown] = keys_[i];
    places[unknown++] = i;
  }
  index_.find({keys, unknown}, {rows, unknown});
  for (std::size_t i = 0; i < unknown; ++i) {
    rows_[places[i]] = rows[i];
    if (rows[i] != RowIndex::kNoRow) records_.prefetch(rows[i]);
  }
}

/// Drops the keys of keys_ that have no row and get none, with their gradients.
void TableRows::admit(std::uint64_t updates) {
  const std::size_t width = options_.width;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (rows_[i] == RowIndex::kNoRow) counts_[i] = counters_->add(keys_[i], counts_[i], updates);
    if (counts_[i] == 0) continue;
    keys_[kept] = keys_[i];
    rows_[kept] = rows_[i];
    counts_[kept] = counts_[i];
    if (kept < i) std::copy_n(gradients_.data() + i * width, width, gradients_.data() + kept * width);
    ++kept;
  }
  keys_.resize(kept);
  counts_.resize(kept);
}

/// Makes the record of a key.
std::uint32_t TableRows::make_row(std::uint64_t key) {
  const std::uint32_t row = records_.add();
  records_.header(row).key = key;
  index_.insert(key, row);
  return row;
}

void TableRows::assign(std::span<const std::uint64_t> keys, ConstElements values) {
  const std::size_t width = options_.width;
  const std::size_t state = options_.rule->state_floats(width);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::uint32_t row = RowIndex::kNoRow;
    index_.find(keys.subspan(i, 1), {&row, 1});
    if (row == RowIndex::kNoRow) row = make_row(keys[i]);
    records_.header(row) = {.key = keys[i], .updates = 1, .last = 0};
    convert(values.subspan(i * width, width), Elements(std::span(records_.values(row), width)));
    std::fill_n(records_.values(row) + width, state, 0.0F);
  }
}

std::vector<std::uint64_t> TableRows::list(std::uint64_t first, std::uint64_t last, std::size_t most) {
  if (order_.size_bytes() != records_.size() * sizeof(std::uint32_t)) {
    order_ = Buffer(records_.size() * sizeof(std::uint32_t), Category::index, ledger_);
    std::ranges::copy(in_order(), order_.as<std::uint32_t>().begin());
  }
  const std::span<const std::uint32_t> order = order_.as<std::uint32_t>();
  const auto key_of = [&](std::uint32_t row) { return records_.header(row).key; };
  std::vector<std::uint64_t> keys;
  auto at = std::ranges::lower_bound(order, first, {}, key_of);
  for (; at != order.end() && keys.size() < most && key_of(*at) <= last; ++at) keys.push_back(key_of(*at));
  if (at == order.end() && keys.size() < most) order_ = {};
  return keys;
}

/// Applies the rule to the rows of keys_, whose gradients are in gradients_.
void TableRows::apply(const Update& update, OldRows* old) {
  const std::size_t width = options_.width;
  find_rows();
  if (counters_) admit(update.count);
  const std::size_t rows = keys_.size();
  float* values[kAtOnce];
  for (std::size_t i = 0; i < rows; ++i) {
    const bool begins = rows_[i] == RowIndex::kNoRow;
    if (begins) rows_[i] = make_row(keys_[i]);
    values[i] = records_.values(rows_[i]);
    if (begins) initial_row(options_.init, options_.seed, options_.number, keys_[i], {values[i], width});
  }
  if (old != nullptr) {
    old->keys.insert(old->keys.end(), keys_.begin(), keys_.end());
    for (std::size_t i = 0; i < rows; ++i) old->values.insert(old->values.end(), values[i], values[i] + width);
  }
  options_.rule->apply(update, width, {.values = {values, rows}, .gradients = gradients_.first(rows * width)});
  for (std::size_t i = 0; i < rows; ++i) {
    RecordHeader& header = records_.header(rows_[i]);
    header.updates = add_occurrences(header.updates, counts_[i]);
    header.last = static_cast<std::uint32_t>(update.count);
  }
  keys_.clear();
  counts_.clear();
}

std::vector<std::uint32_t> TableRows::in_order() const {
  // By group of kCut buckets first, then within each group.
  std::vector<std::size_t> ends(kBuckets / kCut + 1);
  const auto group = [&](std::uint32_t row) { return bucket_of(records_.header(row).key) / kCut; };
  for (std::uint32_t row = 0; row < records_.used(); ++row)
    if (!records_.is_free(row)) ++ends[group(row) + 1];
  for (std::size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
  std::vector<std::uint32_t> order(records_.size());
  for (std::uint32_t row = 0; row < records_.used(); ++row)
    if (!records_.is_free(row)) order[ends[group(row)]++] = row;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> keyed;
  for (std::size_t begin = 0, i = 0; begin < order.size(); begin = ends[i++]) {
    keyed.clear();
    for (std::size_t at = begin; at < ends[i]; ++at) keyed.emplace_back(records_.header(order[at]).key, order[at]);
    std::ranges::sort(keyed);
    for (std::size_t at = begin; at < ends[i]; ++at) order[at] = keyed[at - begin].second;
  }
  return order;
}

std::size_t TableRows::record_bytes() const {
  return sizeof(RecordHeader) + (options_.width + options_.rule->state_floats(options_.width)) * sizeof(float);
}

void TableRows::insert(std::span<const std::byte> record) {
  check(record.size() == record_bytes(), "a record of {} bytes", record.size());
  RecordHeader header;
  std::memcpy(&header, record.data(), sizeof header);
  std::uint32_t row = RowIndex::kNoRow;
  index_.find({&header.key, 1}, {&row, 1});
  if (row == RowIndex::kNoRow) row = make_row(header.key);
  std::memcpy(records_.record(row), record.data(), record.size());
}

}  // namespace psring::optim
