#pragma once

#include <cstddef>
#include <string_view>

#include <psring/ring/link/options.h>
#include <psring/ring/request.h>

namespace psring::ring {

/// Picks the plan of each operation between ranks that exchange messages: the algorithm by options and tuning table,
/// the other collectives by the algorithm's kind. The options must outlive this.
class LinkPlans {
 public:
  LinkPlans(const LinkOptions& options, std::size_t rank, std::size_t ranks)
      : options_(options), rank_(rank), ranks_(ranks) {}

  Plan plan(const Request& request) const;
  Cost predict(const Request& request) const;
  /// "ring"
  std::string_view name(Collective collective, std::size_t bytes) const;
  bool sums_in_rank_order(Collective reduction, ElementType type) const;

 private:
  Tuning::Row choice(std::size_t bytes) const;

  const LinkOptions& options_;
  const std::size_t rank_;
  const std::size_t ranks_;
};

}  // namespace psring::ring
