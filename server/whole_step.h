#pragma once

#include <functional>

#include <psring/optim/optimizer.h>
#include <psring/server/applier.h>
#include <psring/server/store.h>
#include <psring/server/verdict.h>

namespace psring::server {

// Carries out the decisions of StepVerdict: updates of all trained pieces of a shard together, from their mean
// gradients. Each function leaves the pieces' versions as they are; the next version is written when it returns, but
// for apply_means with a layerwise rule.

/// Number, learning rate and gradient scale of a piece's update.
using TermsOf = std::function<optim::Update(std::size_t piece)>;

/// Applies the optimizer. A layerwise rule writes its direction in the place of the mean gradient.
void apply_means(const optim::Optimizer& optimizer, const TermsOf& terms, Store& store, Applier& applier);
/// Copies all values to the next version.
void skip_step(Store& store);
/// Two sums for each tensor of each trained unit, in order: the squares of its parameters, and of its direction.
Verdict::Sums layerwise_sums(Store& store, Applier& applier);
/// Completes a layerwise update: subtracts each tensor's direction, scaled by the ratio of the tensor's two norms.
/// `total`: layerwise_sums of all shards.
void scale_layers(const Verdict::Sums& total, const TermsOf& terms, Store& store, Applier& applier);

}  // namespace psring::server
