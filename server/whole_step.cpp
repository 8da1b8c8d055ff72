#include <span>
#include <vector>

#include <psring/optim/updater.h>
#include <psring/server/whole_step.h>

namespace psring::server {
namespace {

/// The parameters in f32: the values themselves, or the copy that is kept of narrower ones.
std::span<float> weights(Store& store, Applier& applier, std::size_t piece) {
  const Elements master = applier.master(store.piece(piece).place());
  return (master.empty() ? store.current(piece) : master).as<float>();
}

}  // namespace

void apply_means(const optim::Optimizer& optimizer, const TermsOf& terms, Store& store, Applier& applier) {
  for (std::size_t piece = 0; piece < store.pieces().size(); ++piece) {
    if (!store.piece(piece).trained) continue;
    const Range place = store.piece(piece).place();
    applier.apply_mean({.terms = terms(piece),
                        .place = place,
                        .now = store.current(piece),
                        .next = optimizer.layerwise() ? applier.mean(place) : store.next(piece),
                        .copies = {},
                        .compensate_from = {}});
  }
}

void skip_step(Store& store) {
  for (std::size_t piece = 0; piece < store.pieces().size(); ++piece)
    if (store.piece(piece).trained) copy(store.current(piece), store.next(piece));
}

Verdict::Sums layerwise_sums(Store& store, Applier& applier) {
  Verdict::Sums sums;
  for (const std::size_t unit : store.layout().trained()) {
    const auto& tensors = store.layout().units[unit].tensors;
    std::vector<optim::TensorSums> unit_sums(tensors.size());
    const auto [first, last] = store.pieces_of(unit);
    for (std::size_t piece = first; piece < last; ++piece) {
      const StoredPiece& stored = store.piece(piece);
      optim::merge(unit_sums, optim::layerwise_sums(tensors, stored.piece.range, weights(store, applier, piece),
                                                    applier.mean(stored.place()).as<float>()));
    }
    for (const optim::TensorSums& tensor : unit_sums) {
      sums.push_back(tensor.parameters);
      sums.push_back(tensor.direction);
    }
  }
  return sums;
}

void scale_layers(const Verdict::Sums& total, const TermsOf& terms, Store& store, Applier& applier) {
  std::size_t at = 0;
  for (const std::size_t unit : store.layout().trained()) {
    const auto& tensors = store.layout().units[unit].tensors;
    std::vector<optim::TensorSums> sums(tensors.size());
    for (optim::TensorSums& tensor : sums) {
      tensor.parameters = total.at(at++);
      tensor.direction = total.at(at++);
    }
    const std::vector<float> ratios = optim::trust_ratios(sums);
    const auto [first, last] = store.pieces_of(unit);
    for (std::size_t piece = first; piece < last; ++piece) {
      const StoredPiece& stored = store.piece(piece);
      const bool has_master = !applier.master(stored.place()).empty();
      const Elements next = store.next(piece);
      const std::span<float> before = weights(store, applier, piece);
      const std::span<float> after = has_master ? before : next.as<float>();
      optim::scale_layerwise(terms(piece).lr, tensors, stored.piece.range, ratios, before,
                             applier.mean(stored.place()).as<float>(), after);
      if (has_master) narrow(after, next);
    }
  }
}

}  // namespace psring::server
