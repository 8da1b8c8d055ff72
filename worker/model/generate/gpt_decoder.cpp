#include <algorithm>
#include <cmath>

#include <psring/common/base/error.h>
#include <psring/worker/model/gelu.h>
#include <psring/worker/model/generate/gpt_decoder.h>
#include <psring/worker/model/layer_norm.h>
#include <psring/worker/model/vector_math.h>

namespace psring::worker {
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
      head_dim_(weights.shape().dim / weights.shape().heads),
      wide_(whole_panels(4 * weights.shape().dim)) {
  const std::size_t dim = weights.shape().dim;
  const auto buffer = [&](std::size_t floats) {
    return Buffer(kMostRows * floats * sizeof(float), Category::activations, ledger);
  };
  x_ = buffer(dim);
  normal_ = buffer(dim);
  statistics_ = buffer(2);
  hidden_ = buffer(wide_);
  product_ = buffer(whole_panels(dim));
  const PackedMatrix& widest = weights.blocks().front().contraction.weight;
  sums_ = buffer(widest.sums_floats(1));
}

std::size_t GptDecoder::scratch_bytes(std::size_t capacity, std::size_t logits) const {
  const GptShape& shape = weights_.shape();
  const std::size_t floats = kMostRows * (2 * shape.dim + 2 + wide_ + whole_panels(shape.dim) +
                                          weights_.blocks().front().contraction.weight.sums_floats(1)) +
                             shape.heads * kQueryRows * round_up(capacity, KvCache::kGrain) +
                             logits * weights_.wte().padded_outputs();
  return floats * sizeof(float);
}

void GptDecoder::reserve(std::size_t capacity, std::size_t logits) {
  const auto at_least = [&](Buffer& buffer, std::size_t floats) {
    if (buffer.size_bytes() >= floats * sizeof(float)) return;
    buffer = Buffer();
    buffer = Buffer(floats * sizeof(float), Category::activations, ledger_);
  };
  at_least(scores_, weights_.shape().heads * kQueryRows * capacity);
  at_least(logits_, logits * weights_.wte().padded_outputs());
}

std::vector<std::span<const float>> GptDecoder::run(std::span<const DecoderRow> rows, KvCache& cache) {
  std::size_t capacity = 0;
  for (std::size_t s = 0; s < cache.sequences(); ++s) capacity = std::max(capacity, cache.capacity(s));
  const auto wanted =
      static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](auto& r) { return r.logits; }));
  reserve(capacity, wanted);
  float* to = logits_.as<float>().data();
  const std::size_t stride = weights_.wte().padded_outputs();
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
  for (std::size_t r = 0; r < rows.size(); ++r) {
    check(rows[r].token < shape.vocab && rows[r].position < shape.context, "token {} at position {}", rows[r].token,
          rows[r].position);
    float* x = x_.as<float>().data() + r * shape.dim;
    weights_.wte().get_column(rows[r].token, {x, shape.dim});
    const float* place = weights_.wpe().data() + rows[r].position * shape.dim;
    for (std::size_t j = 0; j < shape.dim; ++j) x[j] += place[j];
  }
}

void GptDecoder::normalise(const GptWeights::Norm& norm, std::size_t rows) {
  const std::size_t dim = weights_.shape().dim;
  layer_norm(ConstMatrix{x_.as<float>().data(), rows, dim}, norm.weight, norm.bias, statistics_.as<float>(),
             {normal_.as<float>().data(), rows, dim});
}

void GptDecoder::multiply(const PackedMatrix& matrix, std::size_t rows, const float* x, std::size_t x_stride,
                          float* y) {
  matrix.multiply(rows, x, x_stride, y, sums_.as<float>(), kernels_, threads_);
}

void GptDecoder::run_part(std::span<const DecoderRow> rows, KvCache& cache, float* logits) {
  const std::size_t dim = weights_.shape().dim;
  const std::size_t count = rows.size();
  const std::size_t narrow = whole_panels(dim);
  std::vector<Segment> segments;
  for (std::size_t r = 0; r < count; ++r) {
    if (r == 0 || rows[r].sequence != rows[r - 1].sequence)
      segments.push_back({.first_row = r, .sequence = rows[r].sequence, .position = rows[r].position});
    check(rows[r].position == segments.back().position + segments.back().rows, "positions are not consecutive");
    ++segments.back().rows;
  }
  float* const x = x_.as<float>().data();
  float* const normal = normal_.as<float>().data();
  float* const hidden = hidden_.as<float>().data();
  float* const product = product_.as<float>().data();
  const auto add_residual = [&](std::span<const float> bias) {
    for (std::size_t r = 0; r < count; ++r)
      for (std::size_t j = 0; j < dim; ++j) x[r * dim + j] += product[r * narrow + j] + bias[j];
  };

  embed(rows);
  for (std::size_t layer = 0; layer < weights_.blocks().size(); ++layer) {
    const GptWeights::Block& block = weights_.blocks()[layer];
    normalise(block.ln_1, count);
    multiply(block.attention.weight, count, normal, dim, hidden);
    for (std::size_t r = 0; r < count; ++r)
      add_bias(hidden + r * block.attention.weight.padded_outputs(), block.attention.bias);
    attend(segments, layer, cache);
    multiply(block.projection.weight, count, normal, dim, product);
    add_residual(block.projection.bias);
    normalise(block.ln_2, count);
    multiply(block.expansion.weight, count, normal, dim, hidden);
    for (std::size_t r = 0; r < count; ++r) {
      const std::span<float> row(hidden + r * wide_, 4 * dim);
      add_bias(row.data(), block.expansion.bias);
      gelu_forward(row, row);
    }
    multiply(block.contraction.weight, count, hidden, wide_, product);
    add_residual(block.contraction.bias);
  }

  std::size_t wanted = 0;
  for (std::size_t r = 0; r < count; ++r)
    if (rows[r].logits) std::copy_n(x + r * dim, dim, x + wanted++ * dim);
  if (wanted == 0) return;
  normalise(weights_.ln_f(), wanted);
  multiply(weights_.wte(), wanted, normal, dim, logits);
}

void GptDecoder::attend(std::span<const Segment> segments, std::size_t layer, KvCache& cache) {
  const std::size_t heads = weights_.shape().heads;
  const std::size_t strip = scores_.size_bytes() / sizeof(float) / heads;
  threads_.for_slices(heads, 1, [&](Range slice) {
    for (std::size_t head = slice.begin; head < slice.end; ++head)
      for (const Segment& segment : segments)
        attend_head(segment, layer, head, cache, scores_.as<float>().data() + head * strip);
  });
}

void GptDecoder::attend_head(const Segment& segment, std::size_t layer, std::size_t head, KvCache& cache,
                             float* scores) {
  const std::size_t dim = weights_.shape().dim;
  const std::size_t stride = whole_panels(3 * dim);
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

}  // namespace psring::worker
