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
#include <psring/server/shard.h>

namespace psring::test {

/// A frame as a worker or server would send it, and where its answer may be stored.
struct Frame {
  net::FrameHeader header;
  std::vector<std::byte> payload;
  std::span<std::byte> reply_space;
};

/// What a shard sent; the payload as it was then.
struct Reply {
  net::Peer to;
  net::FrameHeader header;
  std::vector<std::byte> payload;
  const void* stood_at = nullptr;  ///< where the payload was when it was sent

  std::vector<float> values() const;
  std::string text() const;
};

struct ShardRules {
  std::size_t servers = 1;
  std::size_t workers = 1;
  std::string optimizer = "sgd";  ///< "": none, the shard answers with the aggregate
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
  std::string remedy = "none";
  std::string loss_scale = "off";
};

std::unique_ptr<optim::Optimizer> make_rule(const std::string& name);

/// Two units; the first one's tensors are of less than a block, of blocks and a bit, and of whole blocks.
Layout small_layout(std::size_t owners);

Frame layout_frame(std::uint32_t worker, const Layout& layout, std::uint64_t seed = 3, bool initial_by_worker = false);
/// `unit_values` are of the whole unit.
Frame push_frame(std::uint32_t worker, const Piece& piece, std::uint64_t step, std::span<const float> unit_values,
                 net::FrameType type = net::FrameType::push);
Frame pull_frame(std::uint32_t worker, const Piece& piece, std::uint64_t version);

/// All shards of a job, without any network: frames go in by hand; what shards send each other is handed on
/// in an order that a seed gives, what they send to workers is kept.
class ShardCluster {
 public:
  explicit ShardCluster(const ShardRules& rules, std::uint64_t order = 1);
  ~ShardCluster();

  server::Shard& shard(std::size_t rank) { return *shards_.at(rank); }
  /// One more of this rank. REQUIRES: the cluster outlives it.
  std::unique_ptr<server::Shard> make_shard(std::size_t rank) const;
  /// What all of them together keep of pushes that wait.
  std::size_t communication_bytes() const;
  /// What comes of one frame at one shard; frames to other shards are handed on first.
  std::vector<Reply> send(std::size_t server, const Frame& frame);
  /// What comes of one frame at one shard, frames to other shards among it: nothing is handed on.
  std::vector<Reply> send_only(std::size_t server, const Frame& frame);

  /// Every worker declares the layout to every shard.
  void open(const Layout& layout, std::uint64_t seed = 3);
  /// All workers' pushes of a step, of all units, in an order that the seed gives; gradients[worker][unit].
  void step(const Layout& layout, std::uint64_t step, const std::vector<std::vector<std::vector<float>>>& gradients);
  /// A whole unit, pulled; empty where a piece does not answer.
  std::vector<float> pull(const Layout& layout, std::size_t unit, std::uint64_t version);

 private:
  struct Rules;
  const std::unique_ptr<Rules> rules_;
  std::vector<std::unique_ptr<server::Shard>> shards_;
  std::mt19937_64 order_;
};

}  // namespace psring::test
