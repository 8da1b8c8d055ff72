#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/worker/model/safetensors.h>

namespace psring::worker {
namespace {

using Parsed = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and read and written as it is");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::size_t kMostNameBytes = 1024;  // psring's own limit: names are part of messages
constexpr const char* kMetadata = "__metadata__";

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// The types that TensorFile::read converts to f32.
constexpr const char* kReadTypes = "F32, F16, BF16, F64 and I64";

/// Returns the bits per element of a type of the format; nothing for an unknown type.
std::optional<std::size_t> element_bits(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::size_t> kTypes[] = {
      {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8},
      {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},
      {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64}, {"I64", 64}, {"U64", 64}};
  for (const auto& [name, bits] : kTypes)
    if (name == dtype) return bits;
  return std::nullopt;
}

/// Returns a * b; nothing if it exceeds `most`.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b, std::uint64_t most) {
  if (a != 0 && b > most / a) return std::nullopt;
  return a * b;
}

/// Collects a header's entries during parsing. No tree of the whole header is built, and an invalid value is rejected
/// as soon as it is read.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::uint64_t data_begin, std::uint64_t data_bytes,
               std::map<std::string, std::string>& metadata)
      : path_(path), data_begin_(data_begin), data_bytes_(data_bytes), metadata_(metadata) {}

  std::vector<TensorEntry> parse(const std::string& header) {
    if (header.empty() || header.front() != '{') bad("it is not a JSON object");
    try {
      const Parsed rest = Parsed::parse(header, [this](int depth, Parsed::parse_event_t event, Parsed& value) {
        return on_event(depth, event, value);
      });
    } catch (const Parsed::parse_error& error) {
      bad(fmt::format("it is not JSON, from byte {} on", error.byte));
    } catch (const Parsed::exception&) {
      bad("it is not JSON that a header could be");
    }
    check_offsets();
    std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return std::move(entries_);
  }

 private:
  /// `reason` may quote the file, so it is shortened to one line.
  [[noreturn]] void bad(std::string_view reason) const {
    std::string line(reason.substr(0, 400));
    std::replace_if(line.begin(), line.end(), is_control, '?');
    fail(ErrorKind::data, "{}: not a safetensors file: bad header: {}", path_, line);
  }
  [[noreturn]] void bad_tensor(std::string_view reason) const { bad(fmt::format("tensor '{}': {}", name_, reason)); }

  /// Depth 1 is inside the header's object, 2 inside an entry, 3 inside an entry's lists. Returns whether to keep the
  /// value in the tree: entries are removed once they are collected.
  bool on_event(int depth, Parsed::parse_event_t event, const Parsed& value) {
    using Event = Parsed::parse_event_t;
    switch (event) {
      case Event::key:
        on_key(depth, value.get_ref<const std::string&>());
        return true;
      case Event::object_start:
        if (depth > 1) bad_tensor("nested too deep");
        return true;
      case Event::array_start:
        if (depth != 2) bad_tensor("a list where none belongs");
        return true;
      case Event::value:
        if (depth < 2) bad_tensor("expected an object");
        return true;
      case Event::object_end:
        if (depth == 1) on_entry(value);
        return depth == 0;
      case Event::array_end:
        return true;
    }
    return true;
  }

  void on_key(int depth, const std::string& key) {
    if (depth == 1) {
      if (key.size() > kMostNameBytes || std::any_of(key.begin(), key.end(), is_control))
        bad("a tensor's name is too long, or holds control characters");
      name_ = key;
      keys_.clear();
      if (!names_.insert(key).second) bad_tensor("stands twice");
    } else if (!keys_.insert(key).second) {
      bad_tensor(fmt::format("key '{}' stands twice", key));
    }
  }

  void on_entry(const Parsed& value) {
    if (name_ == kMetadata) {
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) bad_tensor(fmt::format("key '{}' is not text", key));
        metadata_[key] = text.get<std::string>();
      }
      return;
    }
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!value.contains(key)) bad_tensor(fmt::format("has no '{}'", key));
    if (value.size() != 3) bad_tensor("has keys other than dtype, shape, data_offsets");
    TensorEntry entry;
    entry.name = name_;
    if (!value["dtype"].is_string()) bad_tensor("its dtype is not text");
    entry.dtype = value["dtype"].get<std::string>();
    const std::optional<std::size_t> width = element_bits(entry.dtype);
    if (!width) bad_tensor(fmt::format("unknown dtype '{}'; psring reads {}", entry.dtype, kReadTypes));
    const std::vector<std::uint64_t> offsets = numbers(value["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes_)
      bad_tensor(
          fmt::format("its data_offsets [{}] do not lie in {} bytes of data", fmt::join(offsets, ", "), data_bytes_));
    entry.begin_bytes = data_begin_ + offsets[0];
    entry.size_bytes = offsets[1] - offsets[0];
    entry.shape = numbers(value["shape"]);
    std::optional<std::uint64_t> bits = *width;
    for (const std::size_t extent : entry.shape)
      if (bits) bits = product(*bits, extent, 8 * data_bytes_);
    if (bits != 8 * entry.size_bytes)
      bad_tensor(fmt::format("{} of shape [{}] does not take {} bytes", entry.dtype, fmt::join(entry.shape, ", "),
                             entry.size_bytes));
    entry.elements = *bits / *width;
    entries_.push_back(std::move(entry));
  }

  std::vector<std::uint64_t> numbers(const Parsed& list) const {
    if (!list.is_array()) bad_tensor("expected a list of numbers");
    std::vector<std::uint64_t> values;
    for (const Parsed& item : list) {
      if (!item.is_number_unsigned()) bad_tensor("expected a list of whole numbers, 0 or above");
      values.push_back(item.get<std::uint64_t>());
    }
    return values;
  }

  /// Checks that the tensors cover the data, each byte exactly once.
  void check_offsets() {
    std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::pair(a.begin_bytes, a.size_bytes) < std::pair(b.begin_bytes, b.size_bytes);
    });
    std::uint64_t at = data_begin_;
    for (const TensorEntry& entry : entries_) {
      name_ = entry.name;
      if (entry.begin_bytes < at) bad_tensor("overlaps the tensor before it");
      if (entry.begin_bytes > at) bad_tensor(fmt::format("{} bytes before it belong to none", entry.begin_bytes - at));
      at += entry.size_bytes;
    }
    const std::uint64_t end = data_begin_ + data_bytes_;
    if (at != end) bad(fmt::format("{} bytes at the end of the file belong to no tensor", end - at));
  }

  const std::string& path_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  std::map<std::string, std::string>& metadata_;
  std::string name_;             ///< name of the current entry
  std::set<std::string> names_;  ///< names of all entries so far
  std::set<std::string> keys_;   ///< keys of the current entry so far
  std::vector<TensorEntry> entries_;
};

std::vector<TensorEntry> read_header(const InputFile& file, std::map<std::string, std::string>& metadata) {
  std::uint64_t length = 0;
  if (file.size_bytes() < kLengthBytes)
    fail(ErrorKind::data, "{}: not a safetensors file: truncated: {} bytes", file.path(), file.size_bytes());
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMostHeaderBytes || length > file.size_bytes() - kLengthBytes)
    fail(ErrorKind::data, "{}: not a safetensors file, or truncated: claims a header of {} bytes in a file of {}",
         file.path(), length, file.size_bytes());
  std::string header(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  const std::uint64_t data_begin = kLengthBytes + length;
  return HeaderParser(file.path(), data_begin, file.size_bytes() - data_begin, metadata).parse(header);
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits.
float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact in f32
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

/// Reads `out.size()` elements of type T from byte `offset` on, in pieces, and converts them.
template <class T, class Convert>
void read_as(const InputFile& file, std::uint64_t offset, std::span<float> out, Convert&& convert) {
  std::array<T, 4096> piece;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t now = std::min(piece.size(), out.size() - done);
    file.read(offset + done * sizeof(T), std::as_writable_bytes(std::span(piece).first(now)));
    for (std::size_t i = 0; i < now; ++i) out[done + i] = convert(piece[i]);
    done += now;
  }
}

constexpr std::string_view kPrefix = "transformer.";
constexpr const char* kHead = "lm_head.weight";

/// Finds the tensor of a spec, by its name or with GPT-2's prefix, and checks its shape.
const TensorEntry& tensor_for(const TensorFile& file, const TensorSpec& spec) {
  const TensorEntry* plain = file.find(spec.name);
  const TensorEntry* prefixed = file.find(std::string(kPrefix) + spec.name);
  const std::string wanted = fmt::format("{} [{}]", spec.name, fmt::join(spec.whole_shape(), ", "));
  if (plain != nullptr && prefixed != nullptr)
    fail(ErrorKind::data, "{}: has both {} and {}, the model wants {}", file.path(), plain->name, prefixed->name,
         wanted);
  const TensorEntry* entry = plain != nullptr ? plain : prefixed;
  if (entry == nullptr) fail(ErrorKind::data, "{}: has no tensor {}, which the model needs", file.path(), wanted);
  if (entry->shape != spec.whole_shape())
    fail(ErrorKind::data, "{}: tensor {} has shape [{}], the model wants {}", file.path(), entry->name,
         fmt::join(entry->shape, ", "), wanted);
  return *entry;
}

/// Returns whether a tensor of a published GPT-2 holds no parameter of its own. The dots matter: …attn.c_attn.bias is a
/// parameter.
bool holds_no_parameter(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name == kHead;
}

/// Returns the length and header of a file of consecutive tensors, and adds up the tensors' bytes.
std::string make_header(std::span<const StoredTensor> tensors, const std::map<std::string, std::string>& metadata,
                        std::uint64_t& data_bytes) {
  Json header;
  header[kMetadata] = {{"format", "pt"}};
  for (const auto& [key, text] : metadata) header[kMetadata][key] = text;
  for (const StoredTensor& tensor : tensors) {
    check(!header.contains(tensor.name), "two tensors of the name '{}' for one file", tensor.name);
    const std::uint64_t begin = data_bytes;
    std::uint64_t bytes = element_bits(tensor.dtype).value() / 8;
    for (const std::size_t extent : tensor.shape) bytes *= extent;
    data_bytes += bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data_bytes}}};
  }
  std::string text = header.dump();
  text.resize(round_up(text.size(), 8), ' ');
  const std::uint64_t length = text.size();
  check(length <= kMostHeaderBytes, "a header of {} bytes", length);
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

std::vector<StoredTensor> stored(std::span<const TensorSpec> specs) {
  std::vector<StoredTensor> tensors;
  for (const TensorSpec& spec : specs) tensors.push_back({.name = spec.name, .shape = spec.whole_shape()});
  return tensors;
}

}  // namespace

TensorFile::TensorFile(const std::string& path) : file_(path), entries_(read_header(file_, metadata_)) {}

const TensorEntry* TensorFile::find(const std::string& name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const TensorEntry& entry, const std::string& key) { return entry.name < key; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

void TensorFile::read(const TensorEntry& entry, std::size_t first, std::span<float> out) const {
  check(first <= entry.elements && out.size() <= entry.elements - first, "{}: elements {} to {} of {}, which has {}",
        path(), first, first + out.size(), entry.name, entry.elements);
  const auto at = [&](std::size_t width) { return entry.begin_bytes + first * width; };
  if (entry.dtype == "F32") {
    file_.read(at(sizeof(float)), std::as_writable_bytes(out));
  } else if (entry.dtype == "F16") {
    read_as<std::uint16_t>(file_, at(2), out, from_f16);
  } else if (entry.dtype == "BF16") {
    read_as<std::uint16_t>(file_, at(2), out, from_bf16);
  } else if (entry.dtype == "F64") {
    read_as<double>(file_, at(8), out, [](double value) { return static_cast<float>(value); });
  } else if (entry.dtype == "I64") {
    read_as<std::int64_t>(file_, at(8), out, [](std::int64_t value) { return static_cast<float>(value); });
  } else {
    fail(ErrorKind::data, "{}: tensor {} is of type {}; psring reads {}", path(), entry.name, entry.dtype, kReadTypes);
  }
}

void TensorFile::read_bytes(const TensorEntry& entry, std::uint64_t first, std::span<std::byte> out) const {
  check(first <= entry.size_bytes && out.size() <= entry.size_bytes - first, "{}: bytes {} to {} of {}, which has {}",
        path(), first, first + out.size(), entry.name, entry.size_bytes);
  file_.read(entry.begin_bytes + first, out);
}

std::vector<const TensorEntry*> match_tensors(const TensorFile& file, std::span<const TensorSpec> specs) {
  std::vector<const TensorEntry*> matched;
  std::set<const TensorEntry*> used;
  for (const TensorSpec& spec : specs) {
    matched.push_back(&tensor_for(file, spec));
    used.insert(matched.back());
  }
  for (const TensorEntry& entry : file.entries())
    if (!used.contains(&entry) && !holds_no_parameter(entry.name))
      fail(ErrorKind::data, "{}: tensor {} [{}] is none of the model's", file.path(), entry.name,
           fmt::join(entry.shape, ", "));
  check_tied_head(file);
  return matched;
}

void check_tied_head(const TensorFile& file) {
  const TensorEntry* const head = file.find(kHead);
  if (head == nullptr) return;
  const TensorEntry* embedding = file.find("wte.weight");
  if (embedding == nullptr) embedding = file.find(std::string(kPrefix) + "wte.weight");
  bool tied = embedding != nullptr && embedding->shape == head->shape;
  std::array<std::vector<float>, 2> values;
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  for (std::size_t at = 0; tied && at < head->elements; at += kPiece) {
    for (std::vector<float>& part : values) part.resize(std::min(kPiece, head->elements - at));
    file.read(*head, at, values[0]);
    file.read(*embedding, at, values[1]);
    tied = values[0] == values[1];
  }
  if (!tied)
    fail(ErrorKind::data,
         "{}: tensor {} is not wte.weight: the model has a head of its own, and psring's GPT shares one tensor",
         file.path(), kHead);
}

void load_range(const TensorFile& file, const UnitLayout& unit, Range range, std::span<float> out) {
  check(out.size() == range.size(), "load_range: {} elements for a range of {}", out.size(), range.size());
  std::fill(out.begin(), out.end(), 0.0F);
  for (const TensorLayout& tensor : unit.tensors) {
    const TensorEntry& entry = tensor_for(file, tensor.spec);
    const Range part = Range{tensor.offset, tensor.offset + tensor.spec.elements()}.intersect(range);
    for (const Run& run : runs_of(tensor.spec, {part.begin - tensor.offset, part.end - tensor.offset})) {
      const std::span<float> values = out.subspan(tensor.offset + run.begin - range.begin, run.size);
      file.read(entry, run.whole_begin, values);
      const auto odd = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
      if (odd != values.end())
        fail(ErrorKind::data, "{}: tensor {}: element {} is {}", file.path(), entry.name,
             run.whole_begin + static_cast<std::size_t>(odd - values.begin()), *odd);
    }
  }
}

TensorWriter::TensorWriter(const std::string& path, std::span<const TensorSpec> specs,
                           const std::map<std::string, std::string>& metadata)
    : TensorWriter(path, stored(specs), metadata) {}

TensorWriter::TensorWriter(const std::string& path, std::span<const StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata)
    : file_(path) {
  const std::string header = make_header(tensors, metadata, left_bytes_);
  file_.write(std::as_bytes(std::span(header)));
}

void TensorWriter::append(std::span<const float> values) { append_bytes(std::as_bytes(values)); }

void TensorWriter::append_bytes(std::span<const std::byte> bytes) {
  check(bytes.size() <= left_bytes_, "{} more bytes than the tensors have", bytes.size() - left_bytes_);
  file_.write(bytes);
  left_bytes_ -= bytes.size();
}

void TensorWriter::commit() {
  check(left_bytes_ == 0, "{} bytes of the tensors are missing", left_bytes_);
  file_.commit();
}

}  // namespace psring::worker
