#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/worker/exchange/tables/table_batch.h>

namespace psring::worker {
namespace {

/// Bytes of the parts for a batch of the most keys.
struct Sizes {
  Sizes(const TableLayout& layout, bool counted, TableBatch::Parts parts, std::size_t gradient_bytes)
      : counts(counted ? layout.most_keys * sizeof(std::uint32_t) : 0),
        with_counts(layout.most_keys * (parts == TableBatch::Parts::cached ? kKeyWithBits
                                        : counted                          ? optim::key_bytes(true)
                                                                           : 0)),
        keys(layout.most_keys * sizeof(std::uint64_t)),
        lookups(layout.most_keys * sizeof(std::uint32_t)),
        offsets((layout.most_bags + 1) * sizeof(std::uint32_t)),
        landing(parts == TableBatch::Parts::none ? 0 : optim::answer_bytes(layout, parts == TableBatch::Parts::ahead)),
        rows(layout.most_keys * layout.row_bytes()),
        gradients(layout.most_keys * gradient_bytes),
        wide_rows(wide_bytes(layout, layout.row_bytes())),
        wide_gradients(wide_bytes(layout, gradient_bytes)) {}
  Sizes(const TableLayout& layout, const optim::TableRule& rule, TableBatch::Parts parts)
      : Sizes(layout, rule.rows.counts(), parts, rule.gradient_bytes(layout)) {}

  /// Rows of f32 beside those that travel, which have so many bytes each.
  static std::size_t wide_bytes(const TableLayout& layout, std::size_t row_bytes) {
    return row_bytes == layout.width * sizeof(float) ? 0 : layout.most_keys * layout.width * sizeof(float);
  }

  std::size_t counts;
  std::size_t with_counts;
  std::size_t keys;
  std::size_t lookups;
  std::size_t offsets;
  std::size_t landing;
  std::size_t rows;
  std::size_t gradients;
  std::size_t wide_rows;
  std::size_t wide_gradients;
};

void add(TrainedBatches& sum, const TrainedBatches& more) {
  sum.batches += more.batches;
  sum.lookups += more.lookups;
  sum.keys += more.keys;
  sum.most_keys = std::max(sum.most_keys, more.most_keys);
}

}  // namespace

TrainedBatches sum_of_trained(std::span<const std::unique_ptr<TableBatch>> batches) {
  TrainedBatches sum;
  for (const auto& batch : batches) add(sum, batch->trained());
  return sum;
}

TableBatch::TableBatch(const TableLayout& layout, const optim::TableRule& rule, const World& world, Parts parts)
    : layout_(layout), rule_(rule), memory_(world.memory), unique_(layout.most_keys) {
  memory_.book(Category::communication, UniqueKeys::size_bytes(layout.most_keys));
  const Sizes sizes(layout, rule, parts);
  counts_ = world.buffer(sizes.counts, Category::communication, nullptr);
  with_counts_ = world.buffer(sizes.with_counts, Category::communication);
  keys_ = world.buffer(sizes.keys, Category::communication);
  lookups_ = world.buffer(sizes.lookups, Category::communication, nullptr);
  offsets_ = world.buffer(sizes.offsets, Category::communication, nullptr);
  landing_ = world.buffer(sizes.landing, Category::communication);
  rows_ = world.buffer(sizes.rows, Category::parameters);
  gradients_ = world.buffer(sizes.gradients, Category::gradients);
  wide_rows_ = world.buffer(sizes.wide_rows, Category::parameters, nullptr);
  wide_gradients_ = world.buffer(sizes.wide_gradients, Category::gradients, nullptr);
}

TableBatch::~TableBatch() { memory_.release(Category::communication, UniqueKeys::size_bytes(layout_.most_keys)); }

void TableBatch::predict(const TableLayout& layout, const optim::TableRule& rule, Parts parts, Prediction& sum) {
  const Sizes sizes(layout, rule, parts);
  sum.worker_memory[Category::communication] += sizes.counts + sizes.with_counts + sizes.keys + sizes.lookups +
                                                sizes.offsets + sizes.landing +
                                                UniqueKeys::size_bytes(layout.most_keys);
  sum.worker_memory[Category::parameters] += sizes.rows + sizes.wide_rows;
  sum.worker_memory[Category::gradients] += sizes.gradients + sizes.wide_gradients;
}

std::size_t TableBatch::lent_bytes(const TableLayout& layout) {
  const Sizes sizes(layout, true, Parts::ahead, layout.row_bytes());
  return layout.most_keys * kKeyWithBits + sizes.keys + sizes.landing + 2 * sizes.rows + 6 * Arena::kAlignment;
}

void TableBatch::take(const KeyBatch& keys, RowUse use) {
  check(keys.lookups.size() <= layout_.most_keys && keys.offsets.size() <= layout_.most_bags + 1,
        "a batch of {} keys of table '{}', at most {} expected", keys.lookups.size(), layout_.name, layout_.most_keys);
  use_ = use;
  bags_ = keys.offsets.size() - 1;
  std::copy(keys.offsets.begin(), keys.offsets.end(), offsets_.as<std::uint32_t>().begin());
  count_ = unique_.find(keys.lookups, keys_.as<std::uint64_t>(), lookups_.as<std::uint32_t>());
  lookups_taken_ = keys.lookups.size();
  if (counts_.size_bytes() > 0) {
    const std::span<std::uint32_t> counts = counts_.as<std::uint32_t>();
    std::fill_n(counts.begin(), count_, 0U);
    for (const std::uint32_t place : lookups_.as<std::uint32_t>().first(keys.lookups.size())) ++counts[place];
  }
  const std::span<float> gradients = summed_gradients().as<float>();
  std::fill_n(gradients.begin(), use != RowUse::read ? values() : 0, 0.0F);
}

std::span<const std::uint64_t> TableBatch::keys() const { return keys_.as<std::uint64_t>().first(count_); }

std::span<const std::uint32_t> TableBatch::counts() const {
  return counts_.size_bytes() == 0 || use_ == RowUse::read ? std::span<const std::uint32_t>()
                                                           : counts_.as<std::uint32_t>().first(count_);
}

Elements TableBatch::rows() { return rows_.elements(layout_.type).subspan(0, values()); }

void TableBatch::arrived() {
  if (narrow()) widen(rows(), wide_rows_.as<float>().first(values()));
}

TableView TableBatch::view(Range bags) {
  check(bags.end <= bags_, "bags up to {} of {}", bags.end, bags_);
  float* const rows = (narrow() ? wide_rows_ : rows_).as<float>().data();
  float* const gradients = summed_gradients().as<float>().data();
  return {.rows = {rows, count_, layout_.width},
          .gradients = {use_ != RowUse::read ? gradients : nullptr, count_, layout_.width},
          .offsets = std::span<const std::uint32_t>(offsets_.as<std::uint32_t>()).subspan(bags.begin, bags.size() + 1),
          .lookups = lookups_.as<std::uint32_t>()};
}

ConstElements TableBatch::gradients() {
  add(trained_, {1, lookups_taken_, count_, count_});
  const std::span<std::byte> bytes = gradients_.bytes().first(count_ * rule_.gradient_bytes(layout_));
  if (rule_.codec) {
    const std::size_t each = rule_.gradient_bytes(layout_);
    const ConstElements sums(wide_gradients_.as<float>());
    for (std::size_t row = 0; row < count_; ++row)
      rule_.codec->encode(sums.subspan(row * layout_.width, layout_.width), {},
                          Elements(bytes.subspan(row * each, each)));
  } else if (narrow()) {
    psring::narrow(wide_gradients_.as<float>().first(values()), Elements(bytes.data(), values(), layout_.type));
  }
  return rule_.gradients(layout_, bytes);
}

}  // namespace psring::worker
