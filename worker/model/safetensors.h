#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/layout.h>
#include <psring/common/base/system/file.h>

namespace psring::worker {

/// A file of tensors in the safetensors format (huggingface.co/docs/safetensors):
///
///   file   = length, header, data
///   length = bytes of the header, 64 bits, little-endian, at most 100 000 000
///   header = a JSON object: name -> {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]},
///            and "__metadata__" -> {text: text}; may end in spaces
///   data   = the tensors, row-major, little-endian; offsets count from its start and leave no holes

/// A tensor of a file.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< in the format's spelling: F32, BF16 ...
  std::vector<std::size_t> shape;
  std::size_t elements = 0;
  std::uint64_t begin_bytes = 0;  ///< from the start of the file
  std::uint64_t size_bytes = 0;
};

/// A safetensors file to read from. The constructor reads the whole header and checks every value before using it;
/// tensor values are read on demand. Errors are data errors that name the file. Safe for use from several threads.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Sorted by name.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Returns null if no tensor has this name.
  const TensorEntry* find(const std::string& name) const;
  /// Reads the elements first … first + out.size() - 1 as f32. F32, F16 and BF16 are exact, F64 and I64 are rounded;
  /// throws data for other types. REQUIRES: `entry` is an entry of this file, and the range lies within its elements.
  void read(const TensorEntry& entry, std::size_t first, std::span<float> out) const;
  /// Reads the bytes of a tensor of any type from byte `first` of the tensor on.
  void read_bytes(const TensorEntry& entry, std::uint64_t first, std::span<std::byte> out) const;
  /// Returns the texts of the header's "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  InputFile file_;
  std::map<std::string, std::string> metadata_;
  std::vector<TensorEntry> entries_;
};

/// Returns the tensors of `file` that match a model's `specs`, in their order. A published GPT-2 matches: names may
/// start with "transformer.", and tensors without parameters of their own are ignored (…attn.bias and
/// …attn.masked_bias, the causal mask, and lm_head.weight, which is wte.weight). Throws data, naming file, tensor and
/// both shapes, if a tensor is missing, has another shape, or is present twice; also if the file has another tensor.
std::vector<const TensorEntry*> match_tensors(const TensorFile& file, std::span<const TensorSpec> specs);

/// Writes the file's values of the unit's elements `range`, as `initialise` writes initial values; padding is zero.
/// Throws data like match_tensors, except for additional tensors, and if a value is not finite. REQUIRES: out.size() ==
/// range.size().
void load_range(const TensorFile& file, const UnitLayout& unit, Range range, std::span<float> out);

/// The key of the metadata that holds the model's specification, as --model takes it. psring writes it into every
/// file.
inline constexpr const char* kModelKey = "psring.model";

/// Throws data, naming the file, if its lm_head.weight is not wte.weight: psring's GPT has one tensor for both.
void check_tied_head(const TensorFile& file);

/// A tensor as a file stores it.
struct StoredTensor {
  std::string name;
  std::string dtype = "F32";  ///< in the format's spelling
  std::vector<std::size_t> shape;
};

/// Writes tensors to a file one after another, so that no copy of the whole model is needed. The bytes depend only
/// on names, shapes, order, values and metadata: equal models give identical files. `commit` gives the file its name;
/// without it, no file remains. Errors are data errors that name the file.
class TensorWriter {
 public:
  /// Reads only the specs' names and shapes. Throws bug if a name is used twice or is reserved.
  TensorWriter(const std::string& path, std::span<const TensorSpec> specs,
               const std::map<std::string, std::string>& metadata = {});
  /// Writes tensors of any type, and more texts of metadata.
  TensorWriter(const std::string& path, std::span<const StoredTensor> tensors,
               const std::map<std::string, std::string>& metadata);

  /// Appends the next elements, in the order of the tensors; the calls may split tensors anywhere.
  void append(std::span<const float> values);
  /// The same for elements of any type.
  void append_bytes(std::span<const std::byte> bytes);
  /// REQUIRES: all elements of all tensors were appended.
  void commit();

 private:
  OutputFile file_;
  std::uint64_t left_bytes_ = 0;  ///< still to append
};

}  // namespace psring::worker
