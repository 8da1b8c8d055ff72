#include <algorithm>
#include <deque>
#include <new>

#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/model/host_network.h>

namespace psring::worker {
namespace {

constexpr std::size_t kAlign = 64;  ///< bytes: a cache line, and the widest vector

/// Returns the size of an f32 copy of values that are not stored in f32.
std::size_t copied(std::size_t elements, DType kept) {
  return kept == DType::f32 ? 0 : round_up(elements, kAlign / sizeof(float));
}

/// Returns whether no earlier element of the list equals element i.
bool is_first(std::span<const std::size_t> list, std::size_t i) {
  return std::find(list.begin(), list.end(), list[i]) == list.begin() + static_cast<std::ptrdiff_t>(i);
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

/// The inputs of a layer during one call, in f32. An input that comes twice is lent once.
class HostNetwork::Inputs {
 public:
  Inputs(const HostNetwork& network, std::size_t layer, Loan& loan) {
    const auto sources = network.sources(layer);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto before = std::find(sources.begin(), sources.end(), sources[i]) - sources.begin();
      all_.push_back(is_first(sources, i) ? network.matrix(loan.read(network.activation(sources[i])), sources[i])
                                          : all_[static_cast<std::size_t>(before)]);
    }
  }
  ConstMatrix x() const { return all_.front(); }
  std::span<const ConstMatrix> all() const { return all_; }

 private:
  std::vector<ConstMatrix> all_;
};

/// The gradients of a layer's inputs during one backward. A layer with one input overwrites dx; `finish` adds dx to the
/// gradients of other readers, if there are any. A layer with several inputs adds by itself.
class HostNetwork::InputGradients {
 public:
  InputGradients(HostNetwork& network, std::size_t layer, Loan& loan) : network_(network) {
    const auto sources = network.sources(layer);
    const Shape x = network.x_shape(layer);
    dx_ = {nullptr, x.rows, x.cols};
    for (std::size_t i = 0; i < sources.size(); ++i) {
      Gradient gradient;
      if (network.wants_dx(layer, sources[i])) {
        if (is_first(sources, i)) lend(sources[i], sources.size() == 1, loan);
        gradient = {values_of(sources[i]), network.unwritten_[sources[i]]};
        if (i == 0) dx_.data = gradient.data();
      }
      if (sources.size() > 1) all_.push_back(gradient);
    }
  }
  Matrix dx() const { return dx_; }
  std::span<const Gradient> all() const { return all_; }

  void finish() {
    for (const Lent& each : lent_) {
      const Elements gradient = network_.gradient(each.source);
      bool& unwritten = network_.unwritten_[each.source];
      if (each.apart) {
        add(gradient, each.values);
      } else {
        if (!all_.empty() && unwritten) std::fill(each.values.begin(), each.values.end(), 0.0F);
        Loan::give_back(each.values, gradient);
      }
      unwritten = false;
    }
  }

 private:
  struct Lent {
    std::size_t source;
    std::span<float> values;
    bool apart;  ///< the values are not in the gradient's own memory, and are added to it
  };

  void lend(std::size_t source, bool overwrites, Loan& loan) {
    const Elements gradient = network_.gradient(source);
    const bool unwritten = network_.unwritten_[source];
    if (overwrites && !unwritten) {
      lent_.push_back({source, network_.addend_.first(gradient.size()), true});
      return;
    }
    const std::span<float> values = loan.write(gradient);
    if (!unwritten && gradient.type() != DType::f32) widen(gradient, values);
    lent_.push_back({source, values, false});
  }
  std::span<float> values_of(std::size_t source) const {
    return std::find_if(lent_.begin(), lent_.end(), [&](const Lent& each) { return each.source == source; })->values;
  }

  HostNetwork& network_;
  Matrix dx_;
  std::vector<Gradient> all_;
  std::vector<Lent> lent_;
};

void HostNetwork::Free::operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlign}); }

/// The f32 copies of a layer's backward, which needs the most: inputs and their gradients, y, dy, saved activations,
/// parameters and their gradients.
std::size_t HostNetwork::copied_floats(std::size_t layer, std::span<const Shape> shapes) const {
  const Layer& of = *model_->layers[layer];
  const auto list = sources(layer);
  std::size_t copies = 2 * copied(shapes[layer + 1].elements(), types_.activations) +
                       copied(of.saved_activations(shapes[list.front()]), types_.activations);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (is_first(list, i))
      copies += 2 * copied(shapes[list[i]].elements(), list[i] == 0 ? input_type() : types_.activations);
  for (const TensorSpec& tensor : of.tensors())
    copies += copied(tensor.elements(), types_.parameters) +
              (wanted_[layer].gradients ? copied(tensor.elements(), types_.gradients) : 0);
  return copies;
}

std::size_t HostNetwork::addend_floats(std::span<const Shape> shapes) const {
  std::size_t most = 0;
  for (std::size_t layer = 0; layer < model_->layers.size(); ++layer) {
    const std::size_t x = sources(layer).front();
    if (sources(layer).size() == 1 && wants_dx(layer, x) && last_reader(x) != layer)
      most = std::max(most, shapes[x].elements());
  }
  return most;
}

std::size_t HostNetwork::assign_slots() {
  slot_of_.assign(layers() + 1, 0);
  std::vector<std::size_t> free_below;  // by slot: activations whose last reader is below this layer may use the slot
  for (std::size_t i = layers() + 1; i-- > 0;) {
    std::size_t slot = 0;
    while (slot < free_below.size() && last_reader(i) >= free_below[slot]) ++slot;
    if (slot == free_below.size()) free_below.push_back(0);
    slot_of_[i] = slot;
    free_below[slot] = i == 0 ? 0 : i - 1;
  }
  return free_below.size();
}

HostNetwork::Sizes HostNetwork::sizes() const {
  const Model& model = *model_;
  const std::vector<Shape> shapes = shapes_for(max_batch_);
  std::vector<Kept> kept;
  std::size_t most_gradient = 0;
  std::size_t most_scratch = 0;
  std::size_t most_copies = 0;
  for (std::size_t i = input_gradient_ ? 0 : 1; i < shapes.size(); ++i)
    most_gradient = std::max(most_gradient, shapes[i].elements());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = *model.layers[i];
    const Shape x = shapes[sources(i).front()];
    kept.push_back({layer.saved_floats(x), layer.saved_activations(x)});
    most_scratch = std::max(most_scratch, layer.scratch_floats(x));
    most_copies = std::max(most_copies, copied_floats(i, shapes));
  }
  Sizes sizes{.places = place_layers(kept, types_.activations, input_type(), kAlign)};
  for (std::size_t slot = 0; slot < gradients_.size(); ++slot)
    sizes.gradients.push_back(sizes.places.add(most_gradient, types_.activations));
  sizes.scratch = sizes.places.add(most_scratch, DType::f32);
  sizes.copies = sizes.places.add(most_copies, DType::f32);
  sizes.addend = sizes.places.add(backward_ ? addend_floats(shapes) : 0, DType::f32);
  return sizes;
}

std::size_t HostNetwork::booked_bytes(const Model& model, const Options& options) {
  const Places places = HostNetwork(model, options).sizes().places;
  return places.bytes + (options.in_flight - 1) * places.own_bytes;
}

HostNetwork::HostNetwork(const Model& model, const Options& options)
    : Network(model, options), types_(options.types), backward_(options.backward), in_flight_(options.in_flight) {
  gradients_.resize(backward_ ? assign_slots() : 0);
  unwritten_.assign(layers() + 1, true);
}

HostNetwork::HostNetwork(const Model& model, Kernels& kernels, MemoryLedger& ledger, const Options& options)
    : HostNetwork(model, options) {
  kernels_ = &kernels;
  ledger_ = &ledger;
  const Sizes sizes = this->sizes();
  const std::size_t others = (in_flight_ - 1) * sizes.places.own_bytes;
  bytes_ = sizes.places.bytes + others;
  std::byte* const memory = take_memory(options.arena);
  // Each micro-batch in flight has its own first bytes; the rest follows them.
  const auto at = [&](const Place& p, std::size_t slot = 0) {
    const std::size_t shift = p.offset < sizes.places.own_bytes ? slot * sizes.places.own_bytes : others;
    return Elements(memory + p.offset + shift, p.count, p.type);
  };
  slots_.resize(in_flight_);
  for (std::size_t slot = 0; slot < in_flight_; ++slot) {
    Slot& own = slots_[slot];
    for (const Place& p : sizes.places.activations) own.activations.push_back(at(p, slot));
    for (const Place& p : sizes.places.saved) own.saved.push_back(at(p, slot).as<float>());
    for (const Place& p : sizes.places.saved_activations) own.saved_activations.push_back(at(p, slot));
    own.targets.resize(max_batch_ * model.rows_per_sample);
    own.target_values.resize(target_values_.size());
    own.batch = batch_;
    own.shapes = shapes_;
  }
  exchange_with(slots_.front());
  for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = at(sizes.gradients[i]);
  addend_ = at(sizes.addend).as<float>();
  scratch_ = at(sizes.scratch).as<float>();
  copies_ = at(sizes.copies).as<float>();
}

std::byte* HostNetwork::take_memory(Arena* lender) {
  if (lender != nullptr) {
    lent_ = Buffer(bytes_, Category::activations, *ledger_, lender);
    return lent_.address();
  }
  arena_.reset(static_cast<std::byte*>(::operator new (bytes_, std::align_val_t{kAlign})));
  ledger_->book(Category::activations, bytes_);
  return arena_.get();
}

HostNetwork::~HostNetwork() {
  if (arena_ != nullptr) ledger_->release(Category::activations, bytes_);
}

void HostNetwork::exchange_with(Slot& slot) {
  activations_.swap(slot.activations);
  saved_.swap(slot.saved);
  saved_activations_.swap(slot.saved_activations);
  targets_.swap(slot.targets);
  target_values_.swap(slot.target_values);
  std::swap(batch_, slot.batch);
  shapes_.swap(slot.shapes);
  std::swap(randomness_, slot.randomness);
}

void HostNetwork::select(std::size_t slot) {
  check(slot < in_flight_, "slot {} of {} micro-batches in flight", slot, in_flight_);
  if (slot == selected_) return;
  exchange_with(slots_[selected_]);
  exchange_with(slots_[slot]);
  selected_ = slot;
  held_ = layers();  // activations that run forward again lie in memory that all slots share
}

Elements HostNetwork::stage_input_of(std::size_t slot) const {
  return slot == selected_ ? activations_[0] : slots_[slot].activations[0];
}

Elements HostNetwork::begin_backward() {
  std::fill(unwritten_.begin(), unwritten_.end(), true);
  return gradient(layers());
}

ConstElements HostNetwork::stage_input_gradient() {
  const Elements gradient = this->gradient(0);
  if (unwritten_[0]) clear(gradient);
  return gradient;
}

std::span<float> HostNetwork::scratch(std::size_t layer) const {
  return scratch_.first(model_->layers[layer]->scratch_floats(x_shape(layer)));
}

std::span<float> HostNetwork::saved(std::size_t layer) const {
  return saved_[layer].first(model_->layers[layer]->saved_floats(x_shape(layer)));
}

Elements HostNetwork::saved_activations(std::size_t layer) const {
  return saved_activations_[layer].subspan(0, model_->layers[layer]->saved_activations(x_shape(layer)));
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
  const Inputs inputs(*this, layer, loan);
  Randomness randomness = randomness_;
  randomness.layer = static_cast<std::uint32_t>(first_layer_ + layer);
  model_->layers[layer]->forward({*kernels_, lent, inputs.x(), matrix(y, layer + 1), saved(layer), kept, scratch(layer),
                                  training, buffers, activation(layer + 1).type(), inputs.all(), batch_, randomness,
                                  table_of(layer)});
  Loan::give_back(y, activation(layer + 1));
  if (training) Loan::give_back(kept, saved_activations(layer));
  held_ = layer;
  computed(layer, {}, false);
}

Targets HostNetwork::targets_of_batch() {
  return {std::span<const std::int32_t>(targets_.data(), batch_ * model_->rows_per_sample), target_values()};
}

LossResult HostNetwork::evaluate() {
  Loan loan(copies_);
  const ConstMatrix y = matrix(loan.read(activation(layers())), layers());
  LossResult result = model_->loss->evaluate(y, targets_of_batch(), 0, {});
  for (const Metric& metric : model_->metrics)
    result.metrics.push_back(metric.sum ? metric.sum(y, targets_of_batch()) : 0);
  return result;
}

std::optional<LossResult> HostNetwork::loss(float scale) {
  check(backward_ && model_->loss != nullptr, "a network without a loss, or for evaluation alone, computes a gradient");
  Loan loan(copies_);
  const std::span<float> dy = loan.write(gradient(layers()));
  loss_ = model_->loss->evaluate(matrix(loan.read(activation(layers())), layers()), targets_of_batch(), scale,
                                 matrix(dy, layers()));
  Loan::give_back(dy, gradient(layers()));
  std::fill(unwritten_.begin(), unwritten_.end(), true);
  return loss_;
}

void HostNetwork::backward_layer(std::size_t layer, std::span<const ConstElements> parameters,
                                 std::span<const BoundGradient> gradients) {
  const Wanted wanted = wanted_[layer];
  check(gradients.empty() || wanted.gradients, "gradients of layer {}, which are not wanted", layer);
  if (!wanted.dx && !wanted.gradients) return;  // a branch in which nothing is trained
  Loan loan(copies_);
  std::vector<std::span<const float>> lent;
  for (const ConstElements& tensor : parameters) lent.push_back(loan.read(tensor));
  std::vector<Gradient> written(gradients.empty() ? parameters.size() : 0);  // unwanted gradients
  std::deque<bool> fresh;  // flags of the copies, which are added to the existing gradients at the end
  for (const BoundGradient& gradient : gradients) {
    const bool direct = gradient.values.type() == DType::f32;
    if (!direct) fresh.push_back(true);
    written.emplace_back(loan.write(gradient.values), direct ? *gradient.fresh : fresh.back());
  }
  InputGradients d_inputs(*this, layer, loan);
  const Inputs inputs(*this, layer, loan);
  model_->layers[layer]->backward(
      {*kernels_, lent, written, inputs.x(), matrix(loan.read(activation(layer + 1)), layer + 1),
       matrix(loan.read(gradient(layer + 1)), layer + 1), d_inputs.dx(), saved(layer),
       loan.read(saved_activations(layer)), scratch(layer), inputs.all(), d_inputs.all(), table_of(layer)});
  d_inputs.finish();
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
