// Attention's kernels against a naive reference in f64.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "layer_kernels.h"

using namespace psring;
using namespace psring::test;
using worker::AttentionShape;

namespace {

struct AttentionReference {
  Values out, log_sums, d_qkv;
};

AttentionReference attention_of(const AttentionShape& s, const Values& qkv, const Values& d_out) {
  const std::size_t dim = s.dim();
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  AttentionReference result{Values(s.rows() * dim), Values(s.head_rows()), Values(qkv.size())};
  for (std::size_t b = 0; b < s.batch; ++b)
    for (std::size_t h = 0; h < s.heads; ++h) {
      const auto at = [&](std::size_t t, std::size_t part, std::size_t j) {
        return (b * s.context + t) * 3 * dim + part * dim + h * s.head_dim + j;
      };
      for (std::size_t i = 0; i < s.context; ++i) {
        Values p(i + 1);
        for (std::size_t k = 0; k <= i; ++k)
          for (std::size_t j = 0; j < s.head_dim; ++j) p[k] += scale * qkv[at(i, 0, j)] * qkv[at(k, 1, j)];
        const double largest = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - largest);
        result.log_sums[(b * s.heads + h) * s.context + i] = largest + std::log(sum);
        double delta = 0;
        const std::size_t row = (b * s.context + i) * dim + h * s.head_dim;
        for (std::size_t k = 0; k <= i; ++k) {
          p[k] /= sum;
          for (std::size_t j = 0; j < s.head_dim; ++j) result.out[row + j] += p[k] * qkv[at(k, 2, j)];
        }
        for (std::size_t j = 0; j < s.head_dim; ++j) delta += result.out[row + j] * d_out[row + j];
        for (std::size_t k = 0; k <= i; ++k) {
          double dp = 0;
          for (std::size_t j = 0; j < s.head_dim; ++j) {
            dp += d_out[row + j] * qkv[at(k, 2, j)];
            result.d_qkv[at(k, 2, j)] += p[k] * d_out[row + j];
          }
          const double d = scale * p[k] * (dp - delta);
          for (std::size_t j = 0; j < s.head_dim; ++j) {
            result.d_qkv[at(i, 0, j)] += d * qkv[at(k, 1, j)];
            result.d_qkv[at(k, 1, j)] += d * qkv[at(i, 0, j)];
          }
        }
      }
    }
  return result;
}

void check_attention(const AttentionShape& shape, DType type) {
  INFO(name_of(type) << ", context " << shape.context << ", heads of " << shape.head_dim);
  const Values qkv = noise(type, shape.rows() * 3 * shape.dim(), 1);
  const Values d_out = noise(type, shape.rows() * shape.dim(), 2);
  const AttentionReference expected = attention_of(shape, qkv, d_out);
  const OnDevice on_qkv(type, qkv);
  const OnDevice on_d_out(type, d_out);
  const OnDevice out(type, shape.rows() * shape.dim());
  const OnDevice log_sums(DType::f32, shape.head_rows());
  const OnDevice d_qkv(type, qkv.size());
  kernels().attention(shape, on_qkv, out, log_sums.as<float>());
  check_close(out.get(), expected.out, type);
  check_close(log_sums.get(), expected.log_sums, type);
  kernels().attention_backward(shape, on_qkv, out, log_sums.as<float>(), on_d_out, d_qkv);
  const Values gradient = d_qkv.get();
  check_close(gradient, expected.d_qkv, type);
  kernels().attention_backward(shape, on_qkv, out, log_sums.as<float>(), on_d_out, d_qkv);
  CHECK(d_qkv.get() == gradient);
}

}  // namespace

TEST_CASE("attention on a device, and its gradient") {
  for (const DType type : kTypes) {
    check_attention({.batch = 2, .context = 37, .heads = 2, .head_dim = 24}, type);
    check_attention({.batch = 1, .context = 5, .heads = 1, .head_dim = 3}, type);
    check_attention({.batch = 1, .context = 33, .heads = 1, .head_dim = 256}, type);
  }
}

TEST_CASE("attention of 16-bit types, and its gradient") {
  for (const DType type : {DType::bf16, DType::f16})
    for (const std::size_t head_dim : {64, 128}) {
      check_attention({.batch = 2, .context = 150, .heads = 2, .head_dim = head_dim}, type);
      check_attention({.batch = 1, .context = 64, .heads = 1, .head_dim = head_dim}, type);
      check_attention({.batch = 1, .context = 1, .heads = 3, .head_dim = head_dim}, type);
      check_attention({.batch = 5, .context = 70, .heads = 7, .head_dim = head_dim}, type);
    }
}
