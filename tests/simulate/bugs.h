#pragma once

#include <cstdint>
#include <memory>

#include <psring/common/proc/job.h>
#include <psring/view/step/simulated_job.h>

namespace psring::test {

/// Planted, to see that the simulation finds them. All but the last are a server's; the last is the links'.
enum class Bug : std::uint8_t {
  none,
  early_answers,   ///< answers leave before the follower has what they are due to
  double_updates,  ///< a push that is repeated after its update goes into the next one, too
  double_rows,     ///< the same for gradients of rows
  lent_buffers,    ///< messages that a process keeps occupy their links' buffers
};

/// Makes the buggy part of a server of this job, for all of its epochs; null if there is no bug.
std::unique_ptr<view::ServerLinks> make_buggy(Bug bug, const JobOptions& job, std::size_t pushes);

}  // namespace psring::test
