#pragma once

#include <memory>

#include <psring/common/base/registry.h>
#include <psring/common/base/spec.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::worker {

/// `single`: one process, no exchange; the reference for speed and, with virtual workers, for equality.
void register_single(Registry<StrategyKind>& registry);
std::unique_ptr<Strategy> make_single(const Plan& plan, const World& world);

/// `ps`, `ps-ssp`, `ps-async`, `ps-colocated`, `dp`; `ps-zero2`, `ps-zero3`: servers own all ranges.
void register_ps(Registry<StrategyKind>& registry);

/// `ddp-naive`, `ddp`: every worker owns everything; gradients are averaged by all-reduce.
void register_ddp(Registry<StrategyKind>& registry);

/// `zero1`, `zero2`, `zero3` (`fsdp`): each worker owns a range of every unit: its optimizer state, from stage 2 on its
/// gradients, in stage 3 its parameters.
void register_zero(Registry<StrategyKind>& registry);

}  // namespace psring::worker
