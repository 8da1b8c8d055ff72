#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/tests/support/shard_cluster.h>

// Frames of rows, as a worker sends them to a ShardCluster, and a layout with one table of short rows.
namespace psring::test {

inline constexpr std::size_t kWidth = 2;
inline constexpr std::size_t kMost = 8;
inline constexpr Range kAll{0, kBuckets};

/// The table is unit 2: it stands behind the units of small_layout.
inline Layout layout_of(std::size_t servers, std::size_t pieces = 1) {
  Layout layout = small_layout(servers);
  layout.tables = {{.name = "rows",
                    .width = kWidth,
                    .init = {Init::Kind::uniform, 0.5F},
                    .most_keys = kMost,
                    .most_bags = kMost,
                    .pieces = pieces}};
  return layout;
}

inline Frame pull(std::uint32_t worker, std::uint64_t version, Range buckets, const std::vector<std::uint64_t>& keys) {
  Frame frame;
  frame.header.type = net::FrameType::rows_pull;
  frame.header.sender_rank = worker;
  frame.header.unit = 2;
  frame.header.set_range(buckets);
  frame.header.step = frame.header.version = version;
  frame.header.micro = static_cast<std::uint32_t>(keys.size() * kWidth);
  const auto bytes = std::as_bytes(std::span(keys));
  frame.payload.assign(bytes.begin(), bytes.end());
  return frame;
}

inline Frame push(std::uint32_t worker, std::uint64_t step, Range buckets, const std::vector<float>& gradients) {
  Frame frame;
  frame.header.type = net::FrameType::rows_push;
  frame.header.flags = net::FrameHeader::kWantAck;
  frame.header.sender_rank = worker;
  frame.header.unit = 2;
  frame.header.set_range(buckets);
  frame.header.step = frame.header.version = step;
  const auto bytes = std::as_bytes(std::span(gradients));
  frame.payload.assign(bytes.begin(), bytes.end());
  return frame;
}

inline std::uint64_t key_in(std::size_t bucket, std::uint64_t low = 0) { return std::uint64_t{bucket} << 44 | low; }

/// The values that a row of the table begins with, under the seed of ShardCluster::open.
inline std::vector<float> initial(std::uint64_t key) {
  std::vector<float> values(kWidth);
  optim::initial_row({Init::Kind::uniform, 0.5F}, 3, 0, key, values);
  return values;
}

}  // namespace psring::test
