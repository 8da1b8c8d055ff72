#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <psring/bench/predict/served_cards.h>

namespace psring::bench {

/// The collectives of workers whose tables are at servers. Each worker sends its bytes to the next host in one frame,
/// on cards that carry rows as well; all have the result as long after the last frame as rounds take in turn.
class ServedTransfers {
 public:
  /// REQUIRES: both outlive this.
  ServedTransfers(const TimedJob& job, const ServedPlaces& places) : job_(job), places_(places) {}

  /// The frame of a worker's next collective, `number` from 0 in the whole job.
  ServedFrame begin(std::uint32_t worker, std::uint32_t number, const std::vector<Leg>& legs);
  /// A worker has received its frame. With the last one, returns how much later all have the result.
  std::optional<double> take(const ServedFrame& frame);

 private:
  struct Transfer {
    std::size_t arrived = 0;
    double later_s = 0;
  };

  const TimedJob& job_;
  const ServedPlaces& places_;
  std::vector<Transfer> transfers_;
};

}  // namespace psring::bench
