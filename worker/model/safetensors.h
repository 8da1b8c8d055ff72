#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/file.h>
#include <psring/common/base/layout.h>

namespace psring::worker {

/// Tensors in a file, in the safetensors format (huggingface.co/docs/safetensors):
///
///   file   = length, header, data
///   length = bytes of the header, 64 bits, little-endian, at most 100 000 000
///   header = a JSON object: name -> {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]},
///            and "__metadata__" -> {text: text}; may end in spaces
///   data   = the tensors, row-major, little-endian; offsets count from its start and leave no holes

/// One tensor of a file.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< as the format spells it: F32, BF16 ...
  std::vector<std::size_t> shape;
  std::size_t elements = 0;
  std::uint64_t begin_bytes = 0;  ///< from the start of the file
  std::uint64_t size_bytes = 0;
};

/// A safetensors file to read from. Opening reads and checks the whole header, every value before it is used;
/// values are read on demand. Errors are data errors that name the file. Safe for use from several threads.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// By name, sorted.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Null where there is none of this name.
  const TensorEntry* find(const std::string& name) const;
  /// Reads elements first … first + out.size() - 1 as f32. F32, F16 and BF16 are exact, F64 and I64 rounded;
  /// throws data for other types. REQUIRES: an entry of this file, and a range within its elements.
  void read(const TensorEntry& entry, std::size_t first, std::span<float> out) const;

 private:
  InputFile file_;
  std::vector<TensorEntry> entries_;
};

/// The tensors of `file` that a model's `specs` ask for, in their order. A published GPT-2 fits: names may
/// start with "transformer.", and tensors that hold no parameter of their own (…attn.bias and …attn.masked_bias,
/// the causal mask, and lm_head.weight, which is wte.weight) are passed over. Throws data, naming file, tensor and
/// both shapes, where one is missing, has another shape, or stands twice; naming it, where one is left over.
std::vector<const TensorEntry*> match_tensors(const TensorFile& file, std::span<const TensorSpec> specs);

/// Writes the file's values of elements `range` of the unit, as `initialise` writes initial ones; padding is
/// zero. Throws data as match_tensors does, but for tensors that are left over, and where a value is not finite.
/// out.size() == range.size().
void load_range(const TensorFile& file, const UnitLayout& unit, Range range, std::span<float> out);

/// Writes f32 tensors to a file, one after the other, so that no whole copy of a model is needed. The bytes
/// depend on nothing but names, shapes, their order, and values: equal models give identical files.
/// The file takes its name in `commit`; without it, nothing is left. Errors are data errors that name the file.
class TensorWriter {
 public:
  /// Only the specs' names and shapes are read. Throws bug where a name stands twice or is reserved.
  TensorWriter(const std::string& path, std::span<const TensorSpec> specs);

  /// The next elements, in the order of the specs; a piece may end anywhere.
  void append(std::span<const float> values);
  /// REQUIRES: all elements of all tensors were appended.
  void commit();

 private:
  OutputFile file_;
  std::size_t left_ = 0;  ///< elements that are still to come
};

}  // namespace psring::worker
