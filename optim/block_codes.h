#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace psring::optim {

/// Optimizer state in 8 bits: block-wise dynamic quantisation (Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", ICLR 2022, arXiv:2110.02861). A block of 256 values, the grain of all cuts, is stored as
///
///   block = scale, codes
///   scale = the largest magnitude, f32
///   codes = 256 bytes: value = scale * map[code]
///
/// The maps are the paper's dynamic trees: seven decades, with the more values the larger they are. Two details differ,
/// so that storing what was read gives the same bytes, and checkpoints in f32 lose nothing: the signed map has -1 in
/// place of its smallest negative value, and a positive square never becomes 0, which also keeps Adam's denominator
/// from vanishing. Blocks whose largest magnitude is below 1e-30 become 0. A block with NaN or infinity is NaN.
enum class CodeMap : std::uint8_t { signed_values, squares };

inline constexpr std::size_t kCodeBlock = 256;
inline constexpr std::size_t kCodeBlockBytes = 4 + kCodeBlock;

/// REQUIRES: elements is a multiple of kCodeBlock.
constexpr std::size_t code_bytes(std::size_t elements) { return elements / kCodeBlock * kCodeBlockBytes; }

/// REQUIRES: values.size() is a multiple of kCodeBlock, blocks.size() == code_bytes(values.size()).
void encode_blocks(CodeMap map, std::span<const float> values, std::span<std::byte> blocks);
void decode_blocks(CodeMap map, std::span<const std::byte> blocks, std::span<float> values);

/// Returns the 256 values of a map, ascending.
std::span<const float> code_values(CodeMap map);

}  // namespace psring::optim
