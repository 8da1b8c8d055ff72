#include <algorithm>
#include <cmath>

#include <psring/common/base/error.h>
#include <psring/worker/model/device/gpt_layers.h>
#include <psring/worker/model/gpt_layers.h>

namespace psring::worker {
namespace {

class Embedding final : public Layer {
 public:
  explicit Embedding(const GptShape& shape) : shape_(shape) {}

  std::vector<TensorSpec> tensors() const override {
    return {{"wte.weight", {shape_.vocab, shape_.dim}, {Init::Kind::normal, 0.02F}},
            {"wpe.weight", {shape_.context, shape_.dim}, {Init::Kind::normal, 0.02F}}};
  }

  Shape output(Shape in) const override {
    if (in.cols != shape_.context)
      fail(ErrorKind::usage, "--model: gpt has a context of {} tokens, but a sample has {}", shape_.context, in.cols);
    return {in.elements(), shape_.dim};
  }

  void forward(const Forward& pass) const override {
    for (std::size_t sample = 0; sample < pass.x.rows; ++sample)
      for (std::size_t position = 0; position < shape_.context; ++position) {
        const float* token = pass.parameters[0].data() + id(pass.x, sample, position) * shape_.dim;
        const float* place = pass.parameters[1].data() + position * shape_.dim;
        float* y = pass.y.row(sample * shape_.context + position);
        for (std::size_t j = 0; j < shape_.dim; ++j) y[j] = token[j] + place[j];
      }
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
        float* token = tokens.data() + id(pass.x, sample, position) * shape_.dim;
        float* place = places.data() + position * shape_.dim;
        for (std::size_t j = 0; j < shape_.dim; ++j) token[j] += dy[j];
        for (std::size_t j = 0; j < shape_.dim; ++j) place[j] += dy[j];
      }
  }

  std::unique_ptr<DeviceLayer> on_device() const override { return make_device_embedding(shape_); }

 private:
  std::size_t id(ConstMatrix x, std::size_t sample, std::size_t position) const {
    const float value = x.row(sample)[position];
    if (!(value >= 0 && value < static_cast<float>(shape_.vocab) && value == std::floor(value)))
      fail(ErrorKind::data, "sample {} of the batch, position {}: token {} is not one of a vocabulary of {}", sample,
           position, value, shape_.vocab);
    return static_cast<std::size_t>(value);
  }

  GptShape shape_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding(const GptShape& shape) { return std::make_unique<Embedding>(shape); }

}  // namespace psring::worker
