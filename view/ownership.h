#pragma once

#include <optional>

#include <psring/common/base/layout.h>
#include <psring/common/base/text/json.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::view {

/// Returns who holds which range of every unit, from the axes of a strategy and the options of a job (run.json's
/// `job`):
///   {workers, servers, colocated, parts, shares or absent, worker: STATES, server: STATES or absent,
///    units: [{name, elements}], mesh: {data, tensor, pipeline} or absent}
///   STATES: {parameters, gradients, optimizer}, each "whole", "range", "none", or "passing": whole units for a while,
///   and nothing in between; "range+passing": a range, and whole units for a while.
/// `parts` is the number of ranges that workers cut a unit into; servers cut a unit into `servers` ranges. In a mesh,
/// it is a part of the unit that is cut: that of a worker's stage and tensor rank (common/base/mesh.h). Null if the
/// job's --shard-group is a host, so that the number of parts is not recorded.
/// `units` is absent without a layout. If servers have different `weights`, `shares` lists the part of every unit that
/// each server has, from 0 to 1.
Json ownership(const worker::StrategyKind& kind, const Json& job, const std::optional<Layout>& layout = std::nullopt,
               const CutWeights& weights = {});

}  // namespace psring::view
