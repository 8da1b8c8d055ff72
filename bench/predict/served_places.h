#pragma once

#include <cstddef>
#include <vector>

#include <psring/bench/predict/timed_job.h>
#include <psring/common/net/frame.h>

namespace psring::bench {

/// Where the workers and servers of a job are, and how many real ones each stands for. Up to some tens of hosts each
/// process is there. Of more hosts every f-th is, and with it every f-th server: a card of a place then carries the
/// messages of all processes that the other place stands for.
class ServedPlaces {
 public:
  /// `waves`: the number of pieces of a server, so that more pieces leave fewer places.
  ServedPlaces(const TimedJob& job, double waves);

  std::size_t workers() const { return workers_; }
  std::size_t servers() const { return standalone_ + colocated_; }
  std::size_t standalone() const { return standalone_; }
  std::size_t count() const { return workers() + servers(); }
  std::size_t hosts() const { return hosts_; }
  std::size_t per_host() const { return per_host_; }
  /// Places: workers, then standalone servers, then colocated ones.
  std::size_t place_of(net::Peer peer) const {
    return peer.role == net::Role::worker ? peer.rank : workers_ + peer.rank;
  }
  bool is_standalone(std::size_t server) const { return server < standalone_; }
  bool is_worker(std::size_t place) const { return place < workers_; }
  /// The place whose process a place shares: a colocated server's is that of its worker.
  std::size_t process_of(std::size_t place) const { return process_of_[place]; }
  std::size_t host_of(std::size_t place) const { return host_of_[place]; }
  /// The number of real processes that the place stands for.
  double stands_for(std::size_t place) const;
  /// The rank of one of the real servers.
  std::size_t rank_of(std::size_t server) const { return is_standalone(server) ? 0 : first_colocated_; }
  /// Factor by which the bytes of a simulated message between a worker and a colocated server represent real ones:
  /// with more hosts, fewer messages stay on their host.
  double bytes_factor(std::size_t worker, std::size_t server_place) const;
  const net::LinkSpec& between() const { return between_; }
  const net::LinkSpec& within() const { return within_; }

 private:
  net::LinkSpec between_;
  net::LinkSpec within_;
  std::size_t hosts_ = 1;  ///< of workers
  std::size_t per_host_ = 1;
  std::size_t workers_ = 1;
  std::size_t standalone_ = 0;
  std::size_t colocated_ = 0;
  std::size_t first_colocated_ = 0;
  double workers_each_ = 1;
  double standalone_each_ = 1;
  double colocated_each_ = 1;
  std::vector<std::size_t> process_of_;  ///< by place
  std::vector<std::size_t> host_of_;
  double between_factor_ = 1;
  double within_factor_ = 1;
};

}  // namespace psring::bench
