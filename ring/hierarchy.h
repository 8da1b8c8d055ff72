#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <psring/ring/process_group.h>

namespace psring::ring {

/// Which ranks share a host, and what each does in an operation that goes through shared memory inside a host and by
/// messages between hosts: index arithmetic alone.
///
/// A column has one rank of every host: column c the (c mod L)-th of a host of L ranks. There are as many columns as
/// the largest host has ranks, so that each of its ranks has one; on a smaller host a rank has several. A vector is
/// cut among the columns: down, the ranks of a host bring a column's cut together at its rank (for a reduction,
/// summed); between, each column exchanges its cut; up, the ranks of a host copy all cuts from each other.
class Hierarchy {
 public:
  /// `host_of`: each rank's host, by any number. Hosts are then numbered by their first ranks.
  Hierarchy(const std::vector<std::size_t>& host_of, std::size_t rank);

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return host_of_.size(); }
  std::size_t hosts() const { return hosts_.size(); }
  std::size_t host() const { return host_of_[rank_]; }
  std::size_t host_of(std::size_t rank) const { return host_of_[rank]; }
  /// The ranks of one host, in order.
  const std::vector<std::size_t>& on_host(std::size_t host) const { return hosts_[host]; }
  /// A rank's place among those of its host.
  std::size_t place_of(std::size_t rank) const { return places_[rank]; }

  /// None on a single host.
  std::size_t columns() const { return columns_; }
  /// The ranks of a column, by host.
  std::vector<std::size_t> column(std::size_t column) const;
  /// The columns that this rank is in.
  const std::vector<std::size_t>& own_columns() const { return own_columns_; }

  /// What an inner group is asked for.
  struct Stage {
    Collective collective = Collective::barrier;
    Range range;  ///< of the vector
    Parts parts;  ///< of the range, for a reduce_scatter or all_gather
    std::size_t root = 0;
  };
  struct Stages {
    Stage down;
    std::vector<Stage> between;  ///< one for each of the own columns
    std::optional<Stage> up;     ///< none on a single host
  };
  /// What this rank does in an operation on `count` elements of `width` bytes.
  Stages stages(Collective collective, std::size_t count, std::size_t width, const Parts& parts,
                std::size_t root) const;

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
