#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/embedding_bag.h>

namespace psring::worker {
namespace {

constexpr std::size_t kMostFeatures = 256;  // a fused key has 8 bits for the feature
constexpr std::size_t kMostWidth = 8191;    // and one value more with a weight of its own: 8192 is the wire's limit

const TableView& checked(const TableView* table, std::size_t bags, std::size_t width) {
  check(table != nullptr && table->offsets.size() == bags + 1 && table->rows.cols == width,
        "an embedding bag without the rows of its batch");
  return *table;
}

}  // namespace

TableSize table_size_of(const Spec& spec, std::size_t features, std::size_t width) {
  if (features > kMostFeatures || width > kMostWidth)
    fail(ErrorKind::usage, "--model {}: expected at most {} features and a dim of {}", spec.text(), kMostFeatures,
         kMostWidth);
  return {features, width};
}

double EmbeddingBag::flops(Shape in, Wanted wanted) const {
  const auto sums = static_cast<double>(in.rows * features_ * width_);
  return wanted.gradients ? 2 * sums : sums;
}

void EmbeddingBag::forward(const Forward& pass) const {
  const std::size_t bags = pass.y.rows * features_;
  const TableView& table = checked(pass.table, bags, width_);
  for (std::size_t bag = 0; bag < bags; ++bag) {
    float* const y = pass.y.data + bag * width_;
    const std::size_t begin = table.offsets[bag];
    const std::size_t end = table.offsets[bag + 1];
    if (begin == end) std::fill_n(y, width_, 0.0F);
    for (std::size_t i = begin; i < end; ++i) {
      const float* const row = table.rows.row(table.lookups[i]);
      if (i == begin)
        std::copy_n(row, width_, y);
      else
        for (std::size_t j = 0; j < width_; ++j) y[j] += row[j];
    }
    if (mode_ == Mode::mean && end - begin > 1)
      for (std::size_t j = 0; j < width_; ++j) y[j] /= static_cast<float>(end - begin);
  }
}

void EmbeddingBag::backward(const Backward& pass) const {
  if (pass.dx.data != nullptr) std::fill_n(pass.dx.data, pass.dx.size(), 0.0F);
  const std::size_t bags = pass.dy.rows * features_;
  const TableView& table = checked(pass.table, bags, width_);
  for (std::size_t bag = 0; bag < bags; ++bag) {
    const float* const dy = pass.dy.data + bag * width_;
    const std::size_t begin = table.offsets[bag];
    const std::size_t end = table.offsets[bag + 1];
    const float share = mode_ == Mode::sum ? 1 : 1 / static_cast<float>(end - begin);  // of an empty bag it is not used
    for (std::size_t i = begin; i < end; ++i) {
      float* const gradient = table.gradients.row(table.lookups[i]);
      for (std::size_t j = 0; j < width_; ++j) gradient[j] += share * dy[j];
    }
  }
}

}  // namespace psring::worker
