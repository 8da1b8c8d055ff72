#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <psring/bench/predict/timed_job.h>
#include <psring/common/net/frame.h>

namespace psring::bench {

/// A piece of a server's share of a unit, or of its rows of a table. Tables are numbered behind the units.
struct ServedPiece {
  std::size_t unit = 0;
  bool has_rows = false;
  bool trained = true;
  double pushed_bytes = 0;  ///< of the gradient, as it is pushed
  double frames = 1;
  double asked_bytes = 0;  ///< keys
  double answer_bytes = 0;
  double early_bytes = 0;  ///< of these, those that come before the update
  bool in_parts = false;   ///< as a frame of their own
  double aggregate_s = 0;  ///< of a server, when a micro-batch is complete
  double update_s = 0;     ///< of a server, when the step is complete

  /// Bytes that a frame about the piece carries; `rows` are the early ones.
  double payload_bytes(net::FrameType type) const;
};

/// All pieces of standalone and of colocated servers.
class ServedPieces {
 public:
  /// Takes larger pieces where a step would have thousands.
  explicit ServedPieces(const TimedJob& job);

  /// The number of pieces of a server, of the kind that has most.
  double waves() const { return static_cast<double>(std::max(pieces_[0].size(), pieces_[1].size())); }
  const std::vector<ServedPiece>& of(bool standalone) const { return pieces_[standalone ? 0 : 1]; }
  /// A unit's pieces in the order in which they leave: one piece of each standalone server, or of each colocated one,
  /// or of both.
  struct Turn {
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t standalone = kNone;
    std::size_t colocated = kNone;
    std::size_t piece(bool of_standalone) const { return of_standalone ? standalone : colocated; }
  };
  const std::vector<Turn>& turns(std::size_t unit) const { return turns_[unit]; }

 private:
  void add(const TimedJob& job, bool standalone, double coarse);
  void add_rows(const TimedJob& job, bool standalone);
  void order(std::size_t units);

  std::vector<ServedPiece> pieces_[2];
  std::vector<std::vector<Turn>> turns_;  ///< by unit
};

/// Where the workers and servers of a job are, and how many real ones each stands for. Up to some tens of hosts each
/// process is there. Of more hosts every f-th is, and with it every f-th server: a card of a place then carries the
/// messages of all processes that the other place stands for. Places are numbered: workers, then standalone servers,
/// then colocated ones.
struct ServedPlaces {
  /// `waves`: the number of pieces of a server, so that more pieces leave fewer places.
  ServedPlaces(const TimedJob& job, double waves);

  net::LinkSpec between;
  net::LinkSpec within;
  std::size_t hosts = 1;  ///< of workers
  std::size_t per_host = 1;
  std::size_t workers = 1;
  std::size_t standalone = 0;
  std::size_t colocated = 0;
  std::size_t first_colocated = 0;  ///< among the real servers
  double workers_each = 1;          ///< real processes that a place stands for
  double standalone_each = 1;
  double colocated_each = 1;
  double between_factor = 1;  ///< see bytes_factor
  double within_factor = 1;

  std::size_t servers() const { return standalone + colocated; }
  std::size_t count() const { return workers + servers(); }
  std::size_t place_of(net::Peer peer) const {
    return peer.role == net::Role::worker ? peer.rank : workers + peer.rank;
  }
  bool is_standalone(std::size_t server) const { return server < standalone; }
  bool is_worker(std::size_t place) const { return place < workers; }
  /// The place whose process a place shares: a colocated server's is that of its worker.
  std::size_t process_of(std::size_t place) const {
    return place < workers + standalone ? place : place - workers - standalone;
  }
  std::size_t host_of(std::size_t place) const {
    const std::size_t process = process_of(place);
    return is_worker(process) ? process / per_host : hosts + process - workers;
  }
  /// The number of real processes that the place stands for.
  double stands_for(std::size_t place) const {
    return is_worker(place) ? workers_each : is_standalone(place - workers) ? standalone_each : colocated_each;
  }
  /// The rank of one of the real servers.
  std::size_t rank_of(std::size_t server) const { return is_standalone(server) ? 0 : first_colocated; }
  /// Factor by which the bytes of a simulated message between a worker and a colocated server represent real ones:
  /// with more hosts, fewer messages stay on their host.
  double bytes_factor(std::size_t worker, std::size_t server_place) const;
};

}  // namespace psring::bench
