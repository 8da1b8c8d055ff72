#include <algorithm>
#include <cmath>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/generate/gpt_decoder.h>
#include <psring/worker/model/layers/gelu.h>
#include <psring/worker/model/layers/layer_norm.h>
#include <psring/worker/model/layers/vector_math.h>

namespace psring::worker {

std::size_t PartExchange::memory_bytes(std::size_t rows, std::size_t columns, std::size_t widest) {
  return std::max(rows * columns, widest) * sizeof(float);
}

std::span<float> PartExchange::memory(std::size_t floats) const {
  return {reinterpret_cast<float*>(part_.memory(floats * sizeof(float)).data()), floats};
}

void PartExchange::gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to) {
  const std::size_t columns = units * unit;
  const std::size_t most = part_.memory_bytes() / sizeof(float) / columns;
  check(most > 0, "the memory of an exchange has no room for {} columns", columns);
  for (std::size_t begin = 0; begin < rows; begin += most)
    gather_some(std::min(most, rows - begin), {own.data + begin * own.stride, own.stride}, units, unit,
                to + begin * columns);
}

void PartExchange::gather_some(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit, float* to) {
  const std::size_t columns = units * unit;
  const std::span<float> all = memory(rows * columns);
  std::vector<std::size_t> sizes(part_.size());
  for (std::size_t r = 0; r < part_.size(); ++r) sizes[r] = rows * part_.of(units, r).size() * unit;
  const Range mine{part_.of(units).begin * unit, part_.of(units).end * unit};
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(own.data + row * own.stride, mine.size(), all.data() + rows * mine.begin + row * mine.size());
  part_.gather(all, sizes);
  received_ += rows * (columns - mine.size()) * sizeof(float);
  for (std::size_t r = 0; r < part_.size(); ++r) {
    const Range theirs{part_.of(units, r).begin * unit, part_.of(units, r).end * unit};
    for (std::size_t row = 0; row < rows; ++row)
      std::copy_n(all.data() + rows * theirs.begin + row * theirs.size(), theirs.size(),
                  to + row * columns + theirs.begin);
  }
}

void PartExchange::share_rows(std::span<const std::uint32_t> owners, std::size_t columns, float* x) {
  const std::span<float> all = memory(owners.size() * columns);
  std::vector<std::size_t> sizes(part_.size());
  for (const std::uint32_t owner : owners) sizes[owner] += columns;
  std::vector<std::size_t> next(part_.size());  // the place of each rank's next row
  for (std::size_t r = 1; r < part_.size(); ++r) next[r] = next[r - 1] + sizes[r - 1];
  std::vector<std::size_t> places;
  for (const std::uint32_t owner : owners) {
    places.push_back(next[owner]);
    next[owner] += columns;
  }
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i] == part_.rank()) std::copy_n(x + i * columns, columns, all.data() + places[i]);
  part_.gather(all, sizes);
  received_ += (all.size() - sizes[part_.rank()]) * sizeof(float);
  for (std::size_t i = 0; i < owners.size(); ++i)
    if (owners[i] != part_.rank()) std::copy_n(all.data() + places[i], columns, x + i * columns);
}

namespace {

constexpr std::size_t kQueryRows = 24;  // of a strip of scores

std::size_t whole_panels(std::size_t columns) { return round_up(columns, kPanelColumns); }

PSRING_WIDEST void exponentials(float* x, float shift, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = exponential(x[i] - shift);
}

void add_bias(float* y, std::span<const float> bias) {
  for (std::size_t j = 0; j < bias.size(); ++j) y[j] += bias[j];
}

}  // namespace

struct GptDecoder::Segment {
  std::size_t first_row = 0;
  std::size_t rows = 0;
  std::size_t sequence = 0;
  std::size_t position = 0;  ///< of the first row
};

GptDecoder::GptDecoder(const GptWeights& weights, std::size_t threads, MemoryLedger& ledger,
                       const PanelKernels& kernels)
    : weights_(weights),
      kernels_(kernels),
      ledger_(ledger),
      threads_(threads),
      exchange_(weights.part()),
      head_dim_(weights.shape().dim / weights.shape().heads),
      heads_(weights.cut().heads.size()),
      own_dim_(heads_ * head_dim_),
      qkv_width_(whole_panels(3 * own_dim_)),
      wide_(std::max(qkv_width_, whole_panels(weights.cut().expansion.size()))) {
  const std::size_t dim = weights.shape().dim;
  const auto buffer = [&](std::size_t floats) {
    return Buffer(kMostRows * floats * sizeof(float), Category::activations, ledger);
  };
  x_ = buffer(dim);
  normal_ = buffer(dim);
  statistics_ = buffer(2);
  hidden_ = buffer(wide_);
  product_ = buffer(whole_panels(weights.cut().contraction.size()));
  const PackedMatrix& widest = weights.blocks().front().contraction.weight;
  sums_ = buffer(widest.sums_floats(1));
  if (!exchange_.whole()) gathered_ = buffer(4 * dim);
}

std::size_t GptDecoder::scratch_bytes(std::size_t capacity, std::size_t logits) const {
  const std::size_t dim = weights_.shape().dim;
  std::size_t row = 2 * dim + 2 + wide_ + whole_panels(weights_.cut().contraction.size()) +
                    weights_.blocks().front().contraction.weight.sums_floats(1);
  std::size_t floats = heads_ * kQueryRows * round_up(capacity, KvCache::kGrain) + logits * logits_stride();
  if (!exchange_.whole()) {
    row += 4 * dim;
    floats += std::min(logits, kMostRows) * weights_.wte().padded_outputs();
  }
  return (kMostRows * row + floats) * sizeof(float);
}

std::size_t GptDecoder::exchange_bytes(const GptShape& shape) {
  return PartExchange::memory_bytes(kMostRows, 4 * shape.dim, shape.vocab);
}

std::size_t GptDecoder::logits_stride() const {
  return exchange_.whole() ? weights_.wte().padded_outputs() : weights_.shape().vocab;
}

void GptDecoder::reserve(std::size_t capacity, std::size_t logits) {
  const auto at_least = [&](Buffer& buffer, std::size_t floats) {
    if (buffer.size_bytes() >= floats * sizeof(float)) return;
    buffer = Buffer();
    buffer = Buffer(floats * sizeof(float), Category::activations, ledger_);
  };
  at_least(scores_, heads_ * kQueryRows * capacity);
  at_least(logits_, logits * logits_stride());
  if (!exchange_.whole()) at_least(own_logits_, std::min(logits, kMostRows) * weights_.wte().padded_outputs());
}

std::vector<std::span<const float>> GptDecoder::run(std::span<const DecoderRow> rows, KvCache& cache) {
  std::size_t capacity = 0;
  for (std::size_t s = 0; s < cache.sequences(); ++s) capacity = std::max(capacity, cache.capacity(s));
  const auto wanted =
      static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](auto& r) { return r.logits; }));
  reserve(capacity, wanted);
  float* to = logits_.as<float>().data();
  const std::size_t stride = logits_stride();
  std::vector<std::span<const float>> result;
  for (std::size_t begin = 0; begin < rows.size(); begin += kMostRows) {
    const auto part = rows.subspan(begin, std::min(kMostRows, rows.size() - begin));
    run_part(part, cache, to + result.size() * stride);
    for (const DecoderRow& row : part)
      if (row.logits) result.emplace_back(to + result.size() * stride, weights_.shape().vocab);
  }
  return result;
}

void GptDecoder::embed(std::span<const DecoderRow> rows) {
  const GptShape& shape = weights_.shape();
  const TensorPart& part = weights_.part();
  const Range own = weights_.cut().tokens.ranges.front();
  float* const x = x_.as<float>().data();
  std::vector<std::uint32_t> owners;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::size_t token = rows[r].token;
    check(token < shape.vocab && rows[r].position < shape.context, "token {} at position {}", token, rows[r].position);
    std::uint32_t owner = 0;
    while (part.of(shape.vocab, owner).end <= token) ++owner;
    owners.push_back(owner);
    if (owner == part.rank()) weights_.wte().get_column(token - own.begin, {x + r * shape.dim, shape.dim});
  }
  if (!exchange_.whole()) exchange_.share_rows(owners, shape.dim, x);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const float* place = weights_.wpe().data() + rows[r].position * shape.dim;
    for (std::size_t j = 0; j < shape.dim; ++j) x[r * shape.dim + j] += place[j];
  }
}

void GptDecoder::normalise(const GptWeights::Norm& norm, std::size_t rows) {
  const std::size_t dim = weights_.shape().dim;
  layer_norm(ConstMatrix{x_.as<float>().data(), rows, dim}, norm.weight, norm.bias, statistics_.as<float>(),
             {normal_.as<float>().data(), rows, dim});
}

void GptDecoder::multiply(const PackedMatrix& matrix, FloatRows x, std::size_t rows, float* y) {
  matrix.multiply(rows, x.data, x.stride, y, sums_.as<float>(), kernels_, threads_);
}

void GptDecoder::multiply(const GptWeights::Linear& linear, FloatRows x, std::size_t rows, float* y) {
  multiply(linear.weight, x, rows, y);
  for (std::size_t r = 0; r < rows; ++r) add_bias(y + r * linear.weight.padded_outputs(), linear.bias);
}

FloatRows GptDecoder::gather(std::size_t rows, FloatRows own, std::size_t units, std::size_t unit) {
  if (exchange_.whole()) return own;
  float* const to = gathered_.as<float>().data();
  exchange_.gather(rows, own, units, unit, to);
  return {to, units * unit};
}

void GptDecoder::add_half(const GptWeights::Linear& linear, FloatRows h, std::size_t units, std::size_t rows) {
  const std::size_t dim = weights_.shape().dim;
  float* const product = product_.as<float>().data();
  multiply(linear, gather(rows, h, units, linear.weight.inputs() / units), rows, product);
  const FloatRows y = gather(rows, {product, linear.weight.padded_outputs()}, dim, 1);
  float* const x = x_.as<float>().data();
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t j = 0; j < dim; ++j) x[r * dim + j] += y.data[r * y.stride + j];
}

void GptDecoder::run_part(std::span<const DecoderRow> rows, KvCache& cache, float* logits) {
  const std::size_t dim = weights_.shape().dim;
  const std::size_t count = rows.size();
  std::vector<Segment> segments;
  for (std::size_t r = 0; r < count; ++r) {
    if (r == 0 || rows[r].sequence != rows[r - 1].sequence)
      segments.push_back({.first_row = r, .sequence = rows[r].sequence, .position = rows[r].position});
    check(rows[r].position == segments.back().position + segments.back().rows, "positions are not consecutive");
    ++segments.back().rows;
  }
  const float* const normal = normal_.as<float>().data();
  float* const hidden = hidden_.as<float>().data();

  embed(rows);
  for (std::size_t layer = 0; layer < weights_.blocks().size(); ++layer) {
    const GptWeights::Block& block = weights_.blocks()[layer];
    normalise(block.ln_1, count);
    multiply(block.attention, {normal, dim}, count, hidden);
    attend(segments, layer, cache);
    add_half(block.projection, {normal, own_dim_}, weights_.shape().heads, count);
    normalise(block.ln_2, count);
    multiply(block.expansion, {normal, dim}, count, hidden);
    const std::size_t stride = block.expansion.weight.padded_outputs();
    for (std::size_t r = 0; r < count; ++r) {
      const std::span<float> row(hidden + r * stride, block.expansion.weight.outputs());
      gelu_forward(row, row);
    }
    add_half(block.contraction, {hidden, stride}, 4 * dim, count);
  }
  compute_logits(rows, logits);
}

void GptDecoder::compute_logits(std::span<const DecoderRow> rows, float* logits) {
  const std::size_t dim = weights_.shape().dim;
  float* const x = x_.as<float>().data();
  std::size_t wanted = 0;
  for (std::size_t r = 0; r < rows.size(); ++r)
    if (rows[r].logits) std::copy_n(x + r * dim, dim, x + wanted++ * dim);
  if (wanted == 0) return;
  normalise(weights_.ln_f(), wanted);
  float* const own = exchange_.whole() ? logits : own_logits_.as<float>().data();
  multiply(weights_.wte(), {normal_.as<float>().data(), dim}, wanted, own);
  if (!exchange_.whole())
    exchange_.gather(wanted, {own, weights_.wte().padded_outputs()}, weights_.shape().vocab, 1, logits);
}

void GptDecoder::attend(std::span<const Segment> segments, std::size_t layer, KvCache& cache) {
  const std::size_t strip = scores_.size_bytes() / sizeof(float) / heads_;
  threads_.for_slices(heads_, 1, [&](Range slice) {
    for (std::size_t head = slice.begin; head < slice.end; ++head)
      for (const Segment& segment : segments)
        attend_head(segment, layer, head, cache, scores_.as<float>().data() + head * strip);
  });
}

void GptDecoder::attend_head(const Segment& segment, std::size_t layer, std::size_t head, KvCache& cache,
                             float* scores) {
  const std::size_t dim = own_dim_;
  const std::size_t stride = qkv_width_;
  const std::size_t capacity = cache.capacity(segment.sequence);
  check(segment.position + segment.rows <= capacity, "{} tokens in a cache of {}", segment.position + segment.rows,
        capacity);
  float* const keys = cache.keys(segment.sequence, layer, head);
  float* const values = cache.values(segment.sequence, layer, head);
  const float* const queries = hidden_.as<float>().data() + segment.first_row * stride + head * head_dim_;
  float* const out = normal_.as<float>().data() + segment.first_row * dim + head * head_dim_;
  for (std::size_t r = 0; r < segment.rows; ++r) {
    const std::size_t position = segment.position + r;
    const float* k = queries + r * stride + dim;
    for (std::size_t j = 0; j < head_dim_; ++j) keys[j * capacity + position] = k[j];
    std::copy_n(k + dim, head_dim_, values + position * head_dim_);
  }
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim_));
  for (std::size_t begin = 0; begin < segment.rows; begin += kQueryRows) {
    const std::size_t rows = std::min(kQueryRows, segment.rows - begin);
    const std::size_t seen = segment.position + begin + rows;  // by the last row
    const std::size_t columns = round_up(seen, KvCache::kGrain);
    kernels_.f32({rows, head_dim_, queries + begin * stride, stride, scores, columns}, keys, capacity, columns);
    float inverse[kQueryRows];
    for (std::size_t i = 0; i < rows; ++i) {
      float* const row = scores + i * columns;
      const std::size_t visible = segment.position + begin + i + 1;
      for (std::size_t j = 0; j < visible; ++j) row[j] *= scale;
      exponentials(row, largest(row, visible), visible);
      std::fill(row + visible, row + columns, 0.0F);
      inverse[i] = 1.0F / sum(row, visible);
    }
    float* const to = out + begin * dim;
    kernels_.f32({rows, seen, scores, columns, to, dim}, values, head_dim_, head_dim_);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < head_dim_; ++j) to[i * dim + j] *= inverse[i];
  }
}

std::uint64_t received_bytes(const GptShape& shape, const TensorPart& part, std::uint64_t rows, std::uint64_t logits,
                             std::uint64_t others) {
  const GptCut cut = cut_gpt(shape, part);
  const std::size_t own = cut.heads.size() * (shape.dim / shape.heads) + cut.projection.size() + cut.expansion.size() +
                          cut.contraction.size();
  return sizeof(float) * (rows * shape.layers * (7 * shape.dim - own) + logits * (shape.vocab - cut.tokens.size()) +
                          others * shape.dim);
}

}  // namespace psring::worker
