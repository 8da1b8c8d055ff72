#pragma once

#include <cstddef>
#include <string>

#include <psring/bench/exchange/exchange.h>
#include <psring/common/base/byte_ledger.h>
#include <psring/common/device/arena.h>
#include <psring/common/proc/data_links.h>

namespace psring::bench {

/// A worker's link to a server that `serve_psring` runs, with the arena that it shares with the server.
class PsringLink {
 public:
  PsringLink(Kind kind, const std::string& endpoint, const std::string& key_file, std::size_t arena_bytes);

  Arena& arena() { return arena_; }
  net::Transport& transport() { return links_.transport(); }

 private:
  ByteLedger ledger_;
  Arena arena_;
  net::DataLinks links_;
};

}  // namespace psring::bench
