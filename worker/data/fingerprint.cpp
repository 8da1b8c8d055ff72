#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/crc32c.h>
#include <psring/worker/data/fingerprint.h>

namespace psring::worker {
namespace {

constexpr std::uint64_t kBlocks = 64;
constexpr std::uint64_t kMostWholeBytes = std::uint64_t{1} << 30;

/// Data as blocks: crc(i, before) continues a checksum with block i.
struct Blocks {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  ///< of all blocks
  std::function<std::uint32_t(std::uint64_t, std::uint32_t)> crc;
};

/// Returns "sample 1a2b3c4d, whole 5e6f7081". The sample has the first block, the last, and others at even distances.
std::string checksums(const Blocks& blocks) {
  const std::uint64_t sampled = std::min(blocks.count, kBlocks);
  std::uint32_t sample = 0;
  for (std::uint64_t i = 0; i < sampled; ++i)
    sample = blocks.crc(sampled == 1 ? 0 : i * (blocks.count - 1) / (sampled - 1), sample);
  if (blocks.bytes >= kMostWholeBytes) return fmt::format("sample {:08x}", sample);
  std::uint32_t whole = 0;
  for (std::uint64_t i = 0; i < blocks.count; ++i) whole = blocks.crc(i, whole);
  return fmt::format("sample {:08x}, whole {:08x}", sample, whole);
}

}  // namespace

std::string fingerprint_of(const InputFile& file) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 16;
  const std::uint64_t size = file.size_bytes();
  std::vector<std::byte> block(kBlockBytes);
  const auto crc = [&](std::uint64_t i, std::uint32_t before) {
    const auto bytes = std::span(block).first(std::min(kBlockBytes, size - i * kBlockBytes));
    file.read(i * kBlockBytes, bytes);
    return crc32c(bytes, before);
  };
  return fmt::format("{} bytes, {}", size, checksums({(size + kBlockBytes - 1) / kBlockBytes, size, crc}));
}

std::string fingerprint_of(const Dataset& data) {
  std::vector<float> input(data.input_cols());
  std::vector<std::int32_t> classes(data.targets_per_sample());
  std::vector<float> values(data.target_values());
  const auto crc = [&](std::uint64_t i, std::uint32_t before) {
    data.read(i, {input, classes, values});
    const std::uint32_t inputs = crc32c(std::as_bytes(std::span(input)), before);
    return crc32c(std::as_bytes(std::span(values)), crc32c(std::as_bytes(std::span(classes)), inputs));
  };
  const std::size_t each = input.size() + classes.size() + values.size();
  return fmt::format("{} samples of {} values, {}", data.size(), each,
                     checksums({data.size(), data.size() * each * sizeof(float), crc}));
}

std::function<std::string()> fingerprint_of_both(const Dataset& train, const Dataset* test) {
  return [&train, test] { return fingerprint_of(train) + (test == nullptr ? "" : "; test: " + fingerprint_of(*test)); };
}

}  // namespace psring::worker
