#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/pieces.h>
#include <psring/common/net/transport.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/rows/row_rules.h>
#include <psring/server/shard.h>

namespace psring::test {

/// A frame as a worker or server would send it, and the sender's memory for the answer.
struct Frame {
  net::FrameHeader header;
  std::vector<std::byte> payload;
  std::span<std::byte> reply_space;
};

/// A frame that a shard sent, with a copy of the payload.
struct Reply {
  net::Peer to;
  net::FrameHeader header;
  std::vector<std::byte> payload;
  const void* stood_at = nullptr;  ///< address of the payload in the shard

  std::vector<float> values() const;
  std::string text() const;
};

struct ShardRules {
  std::size_t servers = 1;
  std::size_t workers = 1;
  std::string optimizer = "sgd";  ///< "": no optimizer, the shard answers with the aggregate
  double lr = 0.1;
  double clip_norm = 0;
  std::string aggregate = "mean";
  std::size_t threads = 1;
  std::size_t memory_bytes = std::size_t{64} << 20;
  std::uint64_t first_version = 0;
  std::function<void(const UnitLayout&, Range, const std::string&, std::span<float>)> saved = {};
  std::uint64_t save_every = 0;
  std::string consistency = "bsp";
  std::size_t backups = 0;
  std::string row_consistency = "bsp";
  std::string remedy = "none";
  std::string loss_scale = "off";
  std::string table_optimizer = "sgd";  ///< of tables' rows; its rate is `lr`
  std::string table_compress = "none";
  optim::RowRules row_rules = {};
  bool keeps_old_rows = false;
};

std::unique_ptr<optim::Optimizer> make_rule(const std::string& name);

/// Two units. The first unit's tensors have less than a block, some blocks and a part of one, and whole blocks.
Layout small_layout(std::size_t owners);

Frame layout_frame(std::uint32_t worker, const Layout& layout, std::uint64_t seed = 3, bool initial_by_worker = false);
/// `unit_values`: the gradient of the whole unit.
Frame push_frame(std::uint32_t worker, const Piece& piece, std::uint64_t step, std::span<const float> unit_values,
                 net::FrameType type = net::FrameType::push);
Frame pull_frame(std::uint32_t worker, const Piece& piece, std::uint64_t version);

/// All shards of a job, without any network. A test hands frames in. Frames between shards are delivered in an order
/// that a seed determines, frames to workers are returned.
class ShardCluster {
 public:
  explicit ShardCluster(const ShardRules& rules, std::uint64_t order = 1);
  ~ShardCluster();

  server::Shard& shard(std::size_t rank) { return *shards_.at(rank); }
  /// Makes another shard of this rank. REQUIRES: the cluster outlives it.
  std::unique_ptr<server::Shard> make_shard(std::size_t rank) const;
  /// Memory of all shards together for pushes that wait and answers that are copied.
  std::size_t communication_bytes() const;
  /// Hands a frame to a shard, delivers the frames between shards, and returns the frames to workers.
  std::vector<Reply> send(std::size_t server, const Frame& frame);
  /// Hands a frame to a shard and returns its answers, also those to other shards; nothing is delivered.
  std::vector<Reply> send_only(std::size_t server, const Frame& frame);

  /// Every worker declares the layout to every shard.
  void open(const Layout& layout, std::uint64_t seed = 3);
  /// Pushes all workers' gradients of a step, in an order that the seed determines; gradients[worker][unit].
  void step(const Layout& layout, std::uint64_t step, const std::vector<std::vector<std::vector<float>>>& gradients);
  /// Pulls a whole unit. Empty if a piece does not answer.
  std::vector<float> pull(const Layout& layout, std::size_t unit, std::uint64_t version);

 private:
  struct Rules;
  const std::unique_ptr<Rules> rules_;
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::mt19937_64 order_;
};

}  // namespace psring::test
