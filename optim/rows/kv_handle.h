#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include <psring/common/base/text/spec.h>
#include <psring/optim/rows/row_rule.h>

namespace psring::optim {

/// A handle says what the servers of a program do with a key's values when some are pushed (ps-lite's request handle).
/// Pulls read the values. It is a rule of rows: `app.row_rules().add("sum", "adds what is pushed", kv_handle({.push =
/// ...}))`, and --table-optimizer sum selects it.
struct KvHandle {
  /// `state`: floats that are kept beside the values, zero before a key's first push. `lr`: the push's rate.
  using Push =
      std::function<void(std::span<float> values, std::span<float> state, std::span<const float> pushed, float lr)>;
  Push push;
  std::size_t state = 0;  ///< floats of state of a key
};

/// Returns the factory of a handle's rule, which takes no arguments after its name. What `push` throws ends the job.
/// Throws usage if there is no `push`.
std::function<std::unique_ptr<RowRule>(const Spec&)> kv_handle(KvHandle handle);

}  // namespace psring::optim
