#pragma once

#include <cstddef>

#include <psring/common/net/link_shaping.h>

namespace psring::bench {

/// Hosts that are connected by network cards, with workers that are connected by faster links within each host.
struct Mesh {
  std::size_t hosts = 1;
  std::size_t workers_per_host = 1;
  net::LinkSpec within{200e9, Nanoseconds{0}};  ///< of each worker, each way
  net::LinkSpec between{25e9, Nanoseconds{0}};  ///< of each host's card, each way; its workers share the card
  bool one_machine = false;                     ///< the hosts are containers of one machine and share its processors
  /// Cards carry frames in the order in which they are sent (--link, the simulator). Else they share their rate among
  /// the frames to several peers, as TCP does.
  bool in_order = false;

  std::size_t workers() const { return hosts * workers_per_host; }
};

}  // namespace psring::bench
