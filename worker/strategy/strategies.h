#pragma once

#include <memory>

#include <psring/common/base/text/registry.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/strategy/strategy_kind.h>

namespace psring::worker {

/// Registers a strategy whose name takes no keys.
inline void add_strategy(Registry<StrategyKind>& registry, const char* name, const char* help,
                         const StrategyKind& kind) {
  registry.add(name, help, [kind](const Spec& spec) {
    spec.allow_only({});
    return std::make_unique<StrategyKind>(kind);
  });
}

/// `single`: one process, no exchange; the reference for speed and, with virtual workers, for equality.
void register_single(Registry<StrategyKind>& registry);
std::unique_ptr<Strategy> make_single(const Plan& plan, const World& world);

/// `ps`, `ps-ssp`, `ps-async`, `ps-colocated`, `dp`; `ps-zero2`, `ps-zero3`: servers own all ranges.
void register_ps(Registry<StrategyKind>& registry);

/// `ps` and `dp` with --optimizer-on worker. The servers only average: they answer a push with the mean gradient, which
/// overwrites the worker's own, and every worker makes the same update.
std::unique_ptr<Strategy> make_ps_on_workers(const Plan& plan, const World& world);

/// `ddp-naive`, `ddp`: every worker owns everything; gradients are averaged by all-reduce.
void register_ddp_naive(Registry<StrategyKind>& registry);
void register_ddp(Registry<StrategyKind>& registry);
/// After register_ddp, whose `make` it uses.
void register_hybrid(Registry<StrategyKind>& registry);

/// `zero1`, `zero2`: every worker has whole parameters, and owns a range of every unit: its optimizer state, in stage 2
/// its gradients, too.
void register_zero(Registry<StrategyKind>& registry);

/// `zero3` (`fsdp`): each worker has only the range of every unit that it owns; units are whole while a pass needs
/// them.
void register_zero3(Registry<StrategyKind>& registry);

}  // namespace psring::worker
