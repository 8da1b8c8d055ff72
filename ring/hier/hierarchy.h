#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include <psring/ring/process_group.h>

namespace psring::ring {

/// The smallest cut in bytes, so that a small vector takes the messages of one column, and not of all columns.
inline constexpr std::size_t kCutBytes = 4096;

/// The plan of operations that use shared memory within a host and messages between hosts: which ranks share a host,
/// and which stages each rank runs. Index arithmetic alone.
///
/// A column has one rank of every host: column c has the (c mod L)-th rank of a host with L ranks. There are as many
/// columns as the largest host has ranks, so that each of its ranks is in one column; on a smaller host a rank is in
/// several columns. A vector is cut among the columns. Stage down: the ranks of a host collect a column's cut at the
/// host's rank in that column, summed in a reduction. Stage between: each column exchanges its cut. Stage up: the ranks
/// of a host copy all cuts from each other.
class Hierarchy {
 public:
  /// `host_of`: each rank's host, as any number. Hosts are then numbered by their first ranks.
  Hierarchy(const std::vector<std::size_t>& host_of, std::size_t rank);

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return host_of_.size(); }
  std::size_t hosts() const { return hosts_.size(); }
  std::size_t host() const { return host_of_[rank_]; }
  std::size_t host_of(std::size_t rank) const { return host_of_[rank]; }
  /// The ranks of one host, in order.
  const std::vector<std::size_t>& on_host(std::size_t host) const { return hosts_[host]; }
  /// A rank's place among the ranks of its host.
  std::size_t place_of(std::size_t rank) const { return places_[rank]; }

  /// The number of columns; 0 on a single host.
  std::size_t columns() const { return columns_; }
  /// The ranks of a column, by host.
  std::vector<std::size_t> column(std::size_t column) const;
  /// The columns that this rank is in.
  const std::vector<std::size_t>& own_columns() const { return own_columns_; }

  /// A call on an inner group.
  struct Stage {
    Collective collective = Collective::barrier;
    Range range;  ///< of the vector
    Parts parts;  ///< of the range; for a reduce_scatter or all_gather
    std::size_t root = 0;
  };
  struct Stages {
    Stage down;
    std::vector<Stage> between;  ///< one for each of this rank's columns
    std::optional<Stage> up;     ///< none on a single host
  };
  /// The stages of this rank in an operation on `count` elements of `width` bytes.
  Stages stages(Collective collective, std::size_t count, std::size_t width, const Parts& parts,
                std::size_t root) const;
  /// The cost of all stages of an operation at this rank. `inside(stage)`: the cost of a stage on the host;
  /// `between(i, stage)`: of a stage in the i-th of this rank's columns.
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts, std::size_t root,
               const std::function<Cost(const Stage&)>& inside,
               const std::function<Cost(std::size_t, const Stage&)>& between) const;

 private:
  std::vector<Range> cuts(std::size_t count, std::size_t width) const;
  std::vector<Range> carried(std::size_t column, std::size_t host, const Parts& parts) const;
  Parts by_place(const std::vector<std::vector<Range>>& by_column) const;
  Stages of_parts(Collective collective, std::size_t count, const Parts& parts) const;
  Stages of_cuts(Collective collective, std::size_t count, const std::vector<Range>& cuts, std::size_t root) const;

  std::size_t rank_;
  std::vector<std::size_t> host_of_;
  std::vector<std::vector<std::size_t>> hosts_;
  std::vector<std::size_t> places_;
  std::size_t columns_ = 0;
  std::vector<std::size_t> own_columns_;
};

}  // namespace psring::ring
