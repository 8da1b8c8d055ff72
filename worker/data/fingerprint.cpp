#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/system/extension.h>
#include <psring/worker/data/fingerprint.h>

namespace psring::worker {
namespace {

constexpr std::uint64_t kBlocks = 64;
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 16;  // of a file
constexpr std::uint64_t kMostWholeBytes = std::uint64_t{1} << 30;

/// Data as blocks: crc(i, before) continues a checksum with block i.
struct Blocks {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  ///< of all blocks
  std::function<std::uint32_t(std::uint64_t, std::uint32_t)> crc;
};

/// Returns "sample 1a2b3c4d". The sample has the first block, the last, and others at even distances.
std::string sample_text(const Blocks& blocks) {
  const std::uint64_t sampled = std::min(blocks.count, kBlocks);
  std::uint32_t sample = 0;
  for (std::uint64_t i = 0; i < sampled; ++i)
    sample = blocks.crc(sampled == 1 ? 0 : i * (blocks.count - 1) / (sampled - 1), sample);
  return fmt::format("sample {:08x}", sample);
}

/// Returns "sample 1a2b3c4d, whole 5e6f7081".
std::string checksums(const Blocks& blocks) {
  const std::string sample = sample_text(blocks);
  if (blocks.bytes >= kMostWholeBytes) return sample;
  std::uint32_t whole = 0;
  for (std::uint64_t i = 0; i < blocks.count; ++i) whole = blocks.crc(i, whole);
  return fmt::format("{}, whole {:08x}", sample, whole);
}

/// REQUIRES: the file outlives the blocks.
Blocks blocks_of(const InputFile& file) {
  const std::uint64_t size = file.size_bytes();
  const auto crc = [&file, size, block = std::vector<std::byte>(kBlockBytes)](std::uint64_t i,
                                                                              std::uint32_t before) mutable {
    const auto bytes = std::span(block).first(std::min(kBlockBytes, size - i * kBlockBytes));
    file.read(i * kBlockBytes, bytes);
    return crc32c(bytes, before);
  };
  return {(size + kBlockBytes - 1) / kBlockBytes, size, crc};
}

std::size_t values_of(const Dataset& data) {
  return data.input_cols() + data.targets_per_sample() + data.target_values();
}

/// REQUIRES: the data set outlives the blocks.
Blocks blocks_of(const Dataset& data) {
  const auto crc = [&data, input = std::vector<float>(data.input_cols()),
                    classes = std::vector<std::int32_t>(data.targets_per_sample()),
                    values = std::vector<float>(data.target_values())](std::uint64_t i, std::uint32_t before) mutable {
    call_extension([&] { return fmt::format("the data set, reading sample {},", i); },
                   [&] {
                     data.read(i, {input, classes, values});
                   });
    const std::uint32_t inputs = crc32c(std::as_bytes(std::span(input)), before);
    return crc32c(std::as_bytes(std::span(values)), crc32c(std::as_bytes(std::span(classes)), inputs));
  };
  return {data.size(), data.size() * values_of(data) * sizeof(float), crc};
}

std::string title_of(const Dataset& data) {
  return fmt::format("{} samples of {} values", data.size(), values_of(data));
}

}  // namespace

std::string fingerprint_of(const InputFile& file) {
  return fmt::format("{} bytes, {}", file.size_bytes(), checksums(blocks_of(file)));
}

std::string fingerprint_of(const Dataset& data) {
  return fmt::format("{}, {}", title_of(data), checksums(blocks_of(data)));
}

std::string sample_of(const InputFile& file) {
  return fmt::format("{} bytes, {}", file.size_bytes(), sample_text(blocks_of(file)));
}

std::string sample_of(const Dataset& data) {
  Blocks blocks = blocks_of(data);
  std::vector<std::uint32_t> counts(data.key_fields().size());
  blocks.crc = [&, values = std::move(blocks.crc), keys = std::vector<std::uint64_t>()](std::uint64_t i,
                                                                                        std::uint32_t before) mutable {
    keys.clear();
    if (!counts.empty()) data.read_keys(i, keys, counts);
    return crc32c(std::as_bytes(std::span(keys)), values(i, before));
  };
  return fmt::format("{}, {}", title_of(data), sample_text(blocks));
}

std::function<std::string()> fingerprint_of_both(const Dataset& train, const Dataset* test) {
  return [&train, test] { return fingerprint_of(train) + (test == nullptr ? "" : "; test: " + fingerprint_of(*test)); };
}

}  // namespace psring::worker
