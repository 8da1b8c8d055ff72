#pragma once

#include <memory>

#include <psring/worker/strategy/strategy.h>

namespace psring {
class Spec;
struct JobOptions;
}  // namespace psring

namespace psring::worker {

/// `single`: one process, no exchange; the reference for speed and, with virtual workers, for equality.
std::unique_ptr<Strategy> make_single(const Spec& spec, const Context& context, const JobOptions& job);

/// `ps`: servers own all ranges. A unit's gradient is pushed as soon as it is complete, with the request
/// for the version that it leads to; the next forward pass waits for each unit when it needs it.
/// The optimizer runs on the servers, or on each worker over the mean that they answer with.
std::unique_ptr<Strategy> make_ps(const Spec& spec, const Context& context, bool optimizer_on_server);

/// `ps-zero2`, `ps-zero3`: a worker's gradient goes with its push; in stage 3 parameters are pulled for each pass, and
/// dropped after it.
std::unique_ptr<Strategy> make_ps_zero(int stage, const Spec& spec, const Context& context, const JobOptions& job);

/// `ddp-naive`: every worker owns everything; after backward the gradients are averaged, one all-reduce a tensor.
std::unique_ptr<Strategy> make_ddp_naive(const Spec& spec, const Context& context, const JobOptions& job);

/// `ddp`: the same in buckets of neighbouring units, which leave while backward goes on.
std::unique_ptr<Strategy> make_ddp(const Spec& spec, const Context& context, const JobOptions& job);

/// `zero1`, `zero2`, `zero3`: each rank owns a range of every unit, its optimizer state, gradients from stage 2,
/// parameters in stage 3.
std::unique_ptr<Strategy> make_zero(int stage, const Spec& spec, const Context& context, const JobOptions& job);

}  // namespace psring::worker
