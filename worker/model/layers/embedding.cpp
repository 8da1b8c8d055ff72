#include <algorithm>
#include <cmath>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/layers/gpt_layers.h>

namespace psring::worker {
namespace {

class Embedding final : public Layer {
 public:
  Embedding(const GptShape& shape, TensorPart part)
      : shape_(shape), part_(std::move(part)), tokens_(part_.of(shape.vocab)) {}

  std::vector<TensorSpec> tensors() const override {
    return {token_rows(shape_, part_), {"wpe.weight", {shape_.context, shape_.dim}, {Init::Kind::normal, 0.02F}}};
  }

  Shape output(Shape in) const override {
    if (in.cols != shape_.context)
      fail(ErrorKind::usage, "--model: gpt has a context of {} tokens, but a sample has {}", shape_.context, in.cols);
    return {in.elements(), shape_.dim};
  }

  LayerSums tensor_sums(Shape in, Wanted /*wanted*/) const override {
    return {.forward = part_.whole() ? 0 : output(in).elements()};
  }

  /// The first part adds the positions.
  void forward(const Forward& pass) const override {
    for (std::size_t sample = 0; sample < pass.x.rows; ++sample)
      for (std::size_t position = 0; position < shape_.context; ++position) {
        const float* const token = row_of(pass.parameters[0], id(pass.x, sample, position));
        const float* place = pass.parameters[1].data() + position * shape_.dim;
        float* y = pass.y.row(sample * shape_.context + position);
        if (token != nullptr && part_.first())
          for (std::size_t j = 0; j < shape_.dim; ++j) y[j] = token[j] + place[j];
        else if (token != nullptr)
          std::copy_n(token, shape_.dim, y);
        else if (part_.first())
          std::copy_n(place, shape_.dim, y);
        else
          std::fill_n(y, shape_.dim, 0.0F);
      }
    part_.sum(pass.y.span());
  }

  void backward(const Backward& pass) const override {
    if (pass.dx.data != nullptr) std::fill_n(pass.dx.data, pass.dx.size(), 0.0F);  // ids have no gradient
    if (!pass.wants_gradients()) return;
    const Gradient& tokens = pass.gradients[0];
    const Gradient& places = pass.gradients[1];
    for (const Gradient* gradient : {&tokens, &places})
      if (gradient->beta() == 0) std::fill_n(gradient->data(), gradient->size(), 0.0F);
    for (std::size_t sample = 0; sample < pass.x.rows; ++sample)
      for (std::size_t position = 0; position < shape_.context; ++position) {
        const float* dy = pass.dy.row(sample * shape_.context + position);
        float* const token = row_of(tokens.span(), id(pass.x, sample, position));
        float* place = places.data() + position * shape_.dim;
        for (std::size_t j = 0; token != nullptr && j < shape_.dim; ++j) token[j] += dy[j];
        for (std::size_t j = 0; j < shape_.dim; ++j) place[j] += dy[j];
      }
  }

  std::unique_ptr<DeviceLayer> on_device() const override {
    return part_.whole() ? make_device_embedding(shape_) : nullptr;
  }

 private:
  /// A token's row of this part's rows of wte; null if another part has the token.
  template <class T>
  T* row_of(std::span<T> rows, std::size_t token) const {
    return tokens_.contains({token, token + 1}) ? rows.data() + (token - tokens_.begin) * shape_.dim : nullptr;
  }

  std::size_t id(ConstMatrix x, std::size_t sample, std::size_t position) const {
    const float value = x.row(sample)[position];
    if (!(value >= 0 && value < static_cast<float>(shape_.vocab) && value == std::floor(value)))
      fail(ErrorKind::data, "sample {} of the batch, position {}: token {} is not one of a vocabulary of {}", sample,
           position, value, shape_.vocab);
    return static_cast<std::size_t>(value);
  }

  GptShape shape_;
  TensorPart part_;
  Range tokens_;  ///< of this part
};

}  // namespace

TensorSpec token_rows(const GptShape& shape, const TensorPart& part) {
  const Range tokens = part.of(shape.vocab);
  TensorSpec rows{"wte.weight", {tokens.size(), shape.dim}, {Init::Kind::normal, 0.02F}};
  if (!part.whole()) cut(rows, 0, shape.vocab, {tokens});
  return rows;
}

std::unique_ptr<Layer> make_embedding(const GptShape& shape, const TensorPart& part) {
  return std::make_unique<Embedding>(shape, part);
}

}  // namespace psring::worker
