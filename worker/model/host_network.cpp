#include <algorithm>
#include <deque>
#include <new>

#include <psring/common/base/error.h>
#include <psring/common/base/range.h>
#include <psring/worker/model/host_network.h>

namespace psring::worker {
namespace {

constexpr std::size_t kAlign = 64;  ///< bytes: a cache line, and the widest vector

/// Returns the size of an f32 copy of values that are not stored in f32.
std::size_t copied(std::size_t elements, DType kept) {
  return kept == DType::f32 ? 0 : round_up(elements, kAlign / sizeof(float));
}

}  // namespace

/// Lends f32 memory during one call: copies of values to read, and memory for values to write. Values in f32 are lent
/// without a copy.
class HostNetwork::Loan {
 public:
  explicit Loan(std::span<float> room) : room_(room) {}

  std::span<const float> read(ConstElements values) {
    if (values.type() == DType::f32) return values.as<float>();
    const std::span<float> copy = take(values.size());
    widen(values, copy);
    return copy;
  }
  /// `give_back` rounds the values to their destination.
  std::span<float> write(Elements values) {
    return values.type() == DType::f32 ? values.as<float>() : take(values.size());
  }
  static void give_back(std::span<const float> written, Elements to) {
    if (to.type() != DType::f32) narrow(written, to);
  }

 private:
  std::span<float> take(std::size_t size) {
    const std::size_t whole = round_up(size, kAlign / sizeof(float));
    check(room_.size() >= whole, "copies: {} floats short", whole - room_.size());
    const std::span<float> taken = room_.first(size);
    room_ = room_.subspan(whole);
    return taken;
  }

  std::span<float> room_;
};

void HostNetwork::Free::operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlign}); }

HostNetwork::Sizes HostNetwork::sizes() const {
  const Model& model = *model_;
  const Types types = types_;
  const std::vector<Shape> shapes = shapes_for(max_batch_);
  std::vector<Kept> kept;
  std::size_t most_gradient = 0;
  std::size_t most_scratch = 0;
  std::size_t most_copies = 0;
  for (std::size_t i = 1; i < shapes.size(); ++i) most_gradient = std::max(most_gradient, shapes[i].elements());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = *model.layers[i];
    kept.push_back({layer.saved_floats(shapes[i]), layer.saved_activations(shapes[i])});
    most_scratch = std::max(most_scratch, layer.scratch_floats(shapes[i]));
    // Backward needs the most copies: x, dx, y, dy, saved activations, parameters and their gradients.
    std::size_t copies =
        2 * copied(shapes[i + 1].elements(), types.activations) + copied(kept[i].activations, types.activations);
    if (i > 0) copies += 2 * copied(shapes[i].elements(), types.activations);
    for (const TensorSpec& tensor : layer.tensors())
      copies += copied(tensor.elements(), types.parameters) +
                (wanted_[i].gradients ? copied(tensor.elements(), types.gradients) : 0);
    most_copies = std::max(most_copies, copies);
  }
  Sizes sizes{.places = place_layers(kept, types.activations, DType::f32, kAlign)};
  for (Place& gradient : sizes.gradients) gradient = sizes.places.add(most_gradient, types.activations);
  sizes.scratch = sizes.places.add(most_scratch, DType::f32);
  sizes.copies = sizes.places.add(most_copies, DType::f32);
  return sizes;
}

std::size_t HostNetwork::booked_bytes(const Model& model, const Options& options) {
  return HostNetwork(model, options).sizes().places.bytes;
}

HostNetwork::HostNetwork(const Model& model, const Options& options) : Network(model, options), types_(options.types) {}

HostNetwork::HostNetwork(const Model& model, Kernels& kernels, MemoryLedger& ledger, const Options& options)
    : HostNetwork(model, options) {
  kernels_ = &kernels;
  ledger_ = &ledger;
  const Sizes sizes = this->sizes();
  arena_.reset(static_cast<std::byte*>(::operator new (sizes.places.bytes, std::align_val_t{kAlign})));
  bytes_ = sizes.places.bytes;
  ledger_->book(Category::activations, bytes_);
  const auto at = [&](const Place& p) { return Elements(arena_.get() + p.offset, p.count, p.type); };
  for (const Place& p : sizes.places.activations) activations_.push_back(at(p));
  for (const Place& p : sizes.places.saved) saved_.push_back(at(p).as<float>());
  for (const Place& p : sizes.places.saved_activations) saved_activations_.push_back(at(p));
  for (std::size_t i = 0; i < 2; ++i) gradients_[i] = at(sizes.gradients[i]);
  scratch_ = at(sizes.scratch).as<float>();
  copies_ = at(sizes.copies).as<float>();
  targets_.resize(max_batch_ * model.rows_per_sample);
}

HostNetwork::~HostNetwork() {
  if (ledger_ != nullptr) ledger_->release(Category::activations, bytes_);
}

std::span<float> HostNetwork::scratch(std::size_t layer) const {
  return scratch_.first(model_->layers[layer]->scratch_floats(shapes_[layer]));
}

std::span<float> HostNetwork::saved(std::size_t layer) const {
  return saved_[layer].first(model_->layers[layer]->saved_floats(shapes_[layer]));
}

Elements HostNetwork::saved_activations(std::size_t layer) const {
  return saved_activations_[layer].subspan(0, model_->layers[layer]->saved_activations(shapes_[layer]));
}

Matrix HostNetwork::matrix(std::span<float> values, std::size_t i) const {
  return {values.data(), shapes_[i].rows, shapes_[i].cols};
}

ConstMatrix HostNetwork::matrix(std::span<const float> values, std::size_t i) const {
  return {values.data(), shapes_[i].rows, shapes_[i].cols};
}

void HostNetwork::forward_layer(std::size_t layer, std::span<const ConstElements> parameters, bool training,
                                std::span<const std::span<float>> buffers) {
  Loan loan(copies_);
  std::vector<std::span<const float>> lent;
  for (const ConstElements& tensor : parameters) lent.push_back(loan.read(tensor));
  const std::span<float> y = loan.write(activation(layer + 1));
  const std::span<float> kept = loan.write(saved_activations(layer));
  model_->layers[layer]->forward({*kernels_, lent, matrix(loan.read(activation(layer)), layer), matrix(y, layer + 1),
                                  saved(layer), kept, scratch(layer), training, buffers, activation(layer + 1).type()});
  Loan::give_back(y, activation(layer + 1));
  if (training) Loan::give_back(kept, saved_activations(layer));
  held_ = layer;
  computed(layer, {}, false);
}

std::span<const std::int32_t> HostNetwork::wanted() const {
  return {targets_.data(), batch_ * model_->rows_per_sample};
}

LossResult HostNetwork::evaluate() {
  Loan loan(copies_);
  return model_->loss->evaluate(matrix(loan.read(activation(layers())), layers()), wanted(), 0, {});
}

std::optional<LossResult> HostNetwork::loss(float scale) {
  Loan loan(copies_);
  const std::span<float> dy = loan.write(gradient(layers()));
  loss_ =
      model_->loss->evaluate(matrix(loan.read(activation(layers())), layers()), wanted(), scale, matrix(dy, layers()));
  Loan::give_back(dy, gradient(layers()));
  return loss_;
}

void HostNetwork::backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                                 std::span<const BoundGradient> gradients) {
  Loan loan(copies_);
  std::vector<std::span<const float>> lent;
  for (const ConstElements& tensor : parameters) lent.push_back(loan.read(tensor));
  const Wanted wanted = wanted_[layer];
  check(gradients.empty() || wanted.gradients, "gradients of layer {}, which are not wanted", layer);
  std::vector<Gradient> written(gradients.empty() ? parameters.size() : 0);  // unwanted gradients
  std::deque<bool> fresh;  // flags of the copies, which are added to the existing gradients at the end
  for (const BoundGradient& gradient : gradients) {
    const bool direct = gradient.values.type() == DType::f32;
    if (!direct) fresh.push_back(true);
    written.emplace_back(loan.write(gradient.values), direct ? *gradient.fresh : fresh.back());
  }
  const Matrix dx = wanted.dx ? matrix(loan.write(gradient(layer)), layer)
                              : Matrix{nullptr, shapes_[layer].rows, shapes_[layer].cols};
  model_->layers[layer]->backward({*kernels_, lent, written, matrix(loan.read(activation(layer)), layer),
                                   matrix(loan.read(activation(layer + 1)), layer + 1),
                                   matrix(loan.read(gradient(layer + 1)), layer + 1), dx, saved(layer),
                                   loan.read(saved_activations(layer)), scratch(layer)});
  if (wanted.dx) Loan::give_back(dx.span(), gradient(layer));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].values.type() == DType::f32 || !written[i].written()) continue;
    if (*gradients[i].fresh)
      narrow(written[i].span(), gradients[i].values);
    else
      add(gradients[i].values, written[i].span());
    *gradients[i].fresh = false;
  }
  computed(layer, wanted, true);
}

}  // namespace psring::worker
