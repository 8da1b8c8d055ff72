#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include <psring/common/net/frame.h>
#include <psring/server/shard_options.h>
#include <psring/server/store/store.h>

namespace psring::server {

/// Worker 0's request to save a version: the shard writes its part of the checkpoint once all pieces have the version,
/// and the workers that have a part of their own have written it.
class SaveRequest {
 public:
  /// REQUIRES: options outlive this.
  explicit SaveRequest(const ShardOptions& options) : options_(options) {}

  /// Takes the request. Throws protocol if the version cannot be saved. REQUIRES: the store is open.
  void ask(const net::FrameHeader& header, const Store& store);
  /// A worker has written its own part of version `header.step`. Throws protocol if it has none.
  void set_written(const net::FrameHeader& header);
  /// The version to be saved now, if there is one.
  std::optional<std::uint64_t> due(const Store& store) const;
  /// The shard's part is written: ends the request, and returns it. REQUIRES: it was due.
  net::FrameHeader finish();
  /// Forgets the request.
  void clear();

 private:
  const ShardOptions& options_;
  std::optional<net::FrameHeader> request_;         ///< not answered yet
  std::map<std::uint32_t, std::uint64_t> written_;  ///< by worker: the last version whose own part it has written
};

}  // namespace psring::server
