#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/range.h>
#include <psring/optim/mixed.h>
#include <psring/server/aggregator.h>
#include <psring/server/store/host_applier.h>

namespace psring::server {
namespace {

/// Aggregates the workers' gradients of one piece, a part at a time: the rule works in f32, and the result is rounded
/// once to the gradients' type. Has scratch memory, so each thread has its own.
class Aggregation {
 public:
  /// `gradients`: in worker order, of equal size and type. REQUIRES: they and the rule outlive this.
  Aggregation(const Aggregator& rule, std::span<const ConstElements> gradients);

  /// Writes the aggregate of elements `part`. REQUIRES: `out` has the gradients' type and the size of `part`.
  void run(Range part, Elements out);

 private:
  const Aggregator& rule_;
  const std::span<const ConstElements> gradients_;
  std::vector<const float*> inputs_;
  std::vector<float> widened_;  ///< a block of each gradient and of the result; empty if gradients are f32
};

Aggregation::Aggregation(const Aggregator& rule, std::span<const ConstElements> gradients)
    : rule_(rule), gradients_(gradients), inputs_(gradients.size()) {
  if (!gradients.empty() && gradients[0].type() != DType::f32) widened_.resize((gradients.size() + 1) * kElementsBlock);
}

void Aggregation::run(Range part, Elements out) {
  if (out.type() == DType::f32) {
    for (std::size_t k = 0; k < inputs_.size(); ++k) inputs_[k] = gradients_[k].part(part).as<float>().data();
    return rule_.aggregate(inputs_, out.as<float>());
  }
  for (std::size_t begin = 0; begin < part.size(); begin += kElementsBlock) {
    const Range block{begin, std::min(part.size(), begin + kElementsBlock)};
    const auto room = [&](std::size_t k) { return std::span(widened_).subspan(k * kElementsBlock, block.size()); };
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      widen(gradients_[k].part(part).part(block), room(k));
      inputs_[k] = room(k).data();
    }
    rule_.aggregate(inputs_, room(inputs_.size()));
    narrow(room(inputs_.size()), out.part(block));
  }
}

/// Elements that one thread aggregates, updates and copies before it goes on: they stay in its first-level cache.
constexpr std::size_t kBlock = 4096;

/// Calls body(block) for each block of the slice.
void for_blocks(Range slice, auto&& body) {
  for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock)
    body(Range{begin, std::min(slice.end, begin + kBlock)});
}

void copy_block(const PieceUpdate& update, Range block) {
  const ConstElements written = update.next.part(block);
  const std::size_t at = block.begin * size_bytes(written.type());
  for (std::byte* copy : update.copies) std::memcpy(copy + at, written.data(), written.size_bytes());
}

/// The places of the counted tensors in the trained storage of a shard, as long ranges as possible.
std::vector<Range> counted_places(const Layout& layout, std::size_t owner) {
  std::vector<Range> places;
  std::size_t offset = 0;
  for (const std::size_t unit : layout.trained()) {
    const Range owned = layout.partition(unit).range(owner);
    for (const TensorLayout& tensor : layout.units[unit].tensors) {
      const Range padded{tensor.offset, tensor.offset + round_up(tensor.spec.elements(), kCut)};
      const Range here = padded.intersect(owned);
      if (!tensor.counted || here.empty()) continue;
      const Range place{offset + here.begin - owned.begin, offset + here.end - owned.begin};
      if (!places.empty() && places.back().end == place.begin)
        places.back().end = place.end;
      else
        places.push_back(place);
    }
    offset += owned.size();
  }
  return places;
}

}  // namespace

HostApplier::HostApplier(const ShardOptions& options, const Layout& layout, Parallel& parallel, MemoryLedger& ledger)
    : options_(options),
      parallel_(parallel),
      gradient_type_(layout.gradient_type),
      counted_(counted_places(layout, options.rank)) {
  if (options.optimizer == nullptr) return;
  const std::size_t elements = layout.owned_trained_elements(options.rank);
  if (options.keeps_master(layout)) master_ = Buffer(elements * sizeof(float), Category::optimizer, ledger);
  state_ = optim::StateMemory(*options.optimizer, elements,
                              [&](std::size_t bytes) { return Buffer(bytes, Category::optimizer, ledger); });
  if (options.keeps_mean(layout)) mean_ = Buffer(elements * size_bytes(gradient_type_), Category::gradients, ledger);
}

Elements HostApplier::master(Range place) {
  return master_.size_bytes() > 0 ? master_.elements(DType::f32).part(place) : Elements();
}

void HostApplier::begin_with(Range place, std::span<const float> values) {
  if (master_.size_bytes() > 0) copy(values, master(place));
}

void HostApplier::begin_with_state(std::size_t slot, Range place, std::span<const float> values) {
  state_.write(slot, place, values);
}

void HostApplier::apply_pushed(std::span<const ConstElements> gradients, const PieceUpdate& update) {
  parallel_.for_slices(update.next.size(), kBlock, [&](Range slice) {
    Aggregation aggregation(*options_.aggregator, gradients);
    float memory[kBlock];
    for_blocks(slice, [&](Range block) {
      if (options_.optimizer == nullptr) {
        aggregation.run(block, update.next.part(block));
      } else {
        const Elements gradient(reinterpret_cast<std::byte*>(memory), block.size(), gradient_type_);
        aggregation.run(block, gradient);
        if (!update.compensate_from.empty()) compensate(update, block, gradient);
        apply(update, block, gradient);
      }
      copy_block(update, block);
    });
  });
}

void HostApplier::add_to_mean(std::span<const ConstElements> gradients, Range place, bool first) {
  const Elements sum = mean(place);
  parallel_.for_slices(sum.size(), kBlock, [&](Range slice) {
    Aggregation aggregation(*options_.aggregator, gradients);
    if (first) return aggregation.run(slice, sum.part(slice));
    float memory[kBlock];
    for_blocks(slice, [&](Range block) {
      const Elements gradient(reinterpret_cast<std::byte*>(memory), block.size(), gradient_type_);
      aggregation.run(block, gradient);
      add(sum.part(block), gradient);
    });
  });
}

void HostApplier::apply_mean(const PieceUpdate& update) {
  const ConstElements gradient = mean(update.place);
  parallel_.for_slices(update.next.size(), kBlock, [&](Range slice) {
    for_blocks(slice, [&](Range block) {
      apply(update, block, gradient.part(block));
      copy_block(update, block);
    });
  });
}

/// Adds the gradients of the tensors that are counted here (TensorLayout::counted).
void HostApplier::add_square_sums(optim::ExactSum& sum) {
  for (const Range part : counted_) optim::add_square_sum(mean_.elements(gradient_type_).part(part), sum);
}

/// Applies the optimizer to a block of the piece.
void HostApplier::apply(const PieceUpdate& update, Range block, ConstElements gradient) {
  const Range place{update.place.begin + block.begin, update.place.begin + block.end};
  const Elements kept = master(place);
  state_.apply(update.terms,
               {.parameters = update.now.part(block),
                .gradient = gradient,
                .master = kept.empty() ? std::span<float>() : kept.as<float>(),
                .state = {},
                .out = update.next.part(block)},
               place);
}

/// Corrects a gradient for the updates since its worker read its values; see StalenessRemedy::Kind::compensate.
void HostApplier::compensate(const PieceUpdate& update, Range block, Elements gradient) const {
  const auto lambda = static_cast<float>(options_.remedy.lambda);
  float g[kBlock];
  float now[kBlock];
  float then[kBlock];
  const std::size_t n = block.size();
  widen(gradient, std::span(g, n));
  widen(update.now.part(block), std::span(now, n));
  widen(update.compensate_from.part(block), std::span(then, n));
  for (std::size_t i = 0; i < n; ++i) g[i] += lambda * g[i] * g[i] * (now[i] - then[i]);
  narrow(std::span<const float>(g, n), gradient);
}

}  // namespace psring::server
