#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/json_number.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/norm.h>

namespace psring::optim {
namespace {

constexpr std::uint64_t kShardFormat = 1;
constexpr const char* kF32 = "f32";

/// Returns the type of an array's elements.
const char* dtype_of(const std::string& array) {
  return array == kRowKeys ? "u64" : array == kRowCounts ? "u32" : kF32;
}

/// The last bytes of a shard: the size and the checksum of the index.
struct Footer {
  static constexpr std::uint32_t kMagic = 0x4b435350;  // "PSCK"

  std::uint64_t index_bytes = 0;
  std::uint32_t index_crc = 0;
  std::uint32_t magic = kMagic;
};
static_assert(sizeof(Footer) == 16 && std::endian::native == std::endian::little);

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Calls body(range) with the tensor's elements of each block of a segment.
void for_each_block(Range segment, auto&& body) {
  for (std::size_t begin = segment.begin; begin < segment.end; begin += kSegmentBlock)
    body(Range{begin, std::min(segment.end, begin + kSegmentBlock)});
}

}  // namespace

std::string slot_array(std::size_t slot) { return fmt::format("optimizer.{}", slot); }

std::string residual_array(std::size_t worker) { return fmt::format("residual.{}", worker); }

namespace {

/// Writes segments to a shard, one after the other, and their index at the end.
class ShardWriter {
 public:
  explicit ShardWriter(const std::string& file) : out_(file) {}

  /// Writes consecutive elements of a tensor. `values`: of the run.
  void add(const TensorLayout& tensor, const std::string& array, const Run& run, ConstElements values) {
    Json checksums = Json::array();
    bool finite = true;
    const Range whole{run.whole_begin, run.whole_begin + run.size};
    for_each_block(whole, [&](Range block) {
      const OnHost host(values.subspan(block.begin - whole.begin, block.size()));
      const ConstElements elements = host.values();
      widened_.resize(elements.type() == DType::f32 ? 0 : elements.size());
      if (!widened_.empty()) widen(elements, widened_);
      const std::span<const std::byte> bytes = widened_.empty() ? elements.bytes() : std::as_bytes(std::span(widened_));
      checksums.push_back(crc32c(bytes));
      finite = finite && all_finite(widened_.empty() ? elements.as<float>() : std::span<const float>(widened_));
      out_.write(bytes);
    });
    segments_.push_back({{"tensor", tensor.spec.name},
                         {"array", array},
                         {"dtype", kF32},
                         {"begin", whole.begin},
                         {"end", whole.end},
                         {"offset", offset_},
                         {"crc32c", std::move(checksums)}});
    if (!finite) segments_.back()["finite"] = false;
    offset_ += run.size * sizeof(float);
  }

  /// Writes the rows of a table, array by array.
  void add(const TablePart& part) {
    const std::vector<std::uint32_t> order = part.rows->in_order();
    const RecordMemory& records = part.rows->records();
    constexpr std::size_t kAhead = 8;
    for (const RowArray& array : row_arrays(part.table->width, *part.rows->options().rule)) {
      Json checksums = Json::array();
      bool finite = true;
      std::size_t used = 0;
      const auto flush = [&](std::size_t words) {
        const std::span<const float> block = std::span<const float>(widened_).first(words);
        checksums.push_back(crc32c(std::as_bytes(block)));
        finite = finite && (dtype_of(array.name) != std::string_view(kF32) || all_finite(block));
        out_.write(std::as_bytes(block));
        std::copy(widened_.begin() + static_cast<std::ptrdiff_t>(words),
                  widened_.begin() + static_cast<std::ptrdiff_t>(used), widened_.begin());
        used -= words;
      };
      widened_.resize(kSegmentBlock + array.words);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (i + kAhead < order.size()) records.prefetch(order[i + kAhead]);
        std::memcpy(widened_.data() + used, records.record(order[i]) + array.begin * sizeof(float),
                    array.words * sizeof(float));
        used += array.words;
        if (used >= kSegmentBlock) flush(kSegmentBlock);
      }
      if (used > 0) flush(used);
      segments_.push_back({{"tensor", part.table->name},
                           {"array", array.name},
                           {"dtype", dtype_of(array.name)},
                           {"begin", part.buckets.begin},
                           {"end", part.buckets.end},
                           {"rows", order.size()},
                           {"width", array.words},
                           {"offset", offset_},
                           {"crc32c", std::move(checksums)}});
      if (!finite) segments_.back()["finite"] = false;
      offset_ += order.size() * array.words * sizeof(float);
    }
  }

  void finish(std::uint64_t step) {
    const std::string index = Json{{"format", kShardFormat}, {"step", step}, {"segments", std::move(segments_)}}.dump();
    const Footer footer{index.size(), crc32c(bytes_of(index))};
    out_.write(bytes_of(index));
    out_.write(std::as_bytes(std::span(&footer, 1)));
    out_.commit();
  }

 private:
  OutputFile out_;
  Json segments_ = Json::array();
  std::uint64_t offset_ = 0;
  std::vector<float> widened_;
};

}  // namespace

void write_shard(const std::string& file, std::uint64_t step, std::span<const StatePart> parts,
                 std::span<const TablePart> tables) {
  ShardWriter writer(file);
  for (const StatePart& part : parts) {
    check(part.values.size() == part.range.size(), "{} values for a range of {}", part.values.size(),
          part.range.size());
    for (const TensorLayout& tensor : part.unit->tensors) {
      const Range held = Range{tensor.offset, tensor.offset + tensor.spec.elements()}.intersect(part.range);
      if (!tensor.counted) continue;
      for (const Run& run : runs_of(tensor.spec, {held.begin - tensor.offset, held.end - tensor.offset}))
        writer.add(tensor, part.array, run,
                   part.values.subspan(tensor.offset + run.begin - part.range.begin, run.size));
    }
  }
  for (const TablePart& table : tables) writer.add(table);
  writer.finish(step);
}

ShardFile::ShardFile(const std::string& path) : file_(path) { read_index(); }

void ShardFile::fail_damaged(const std::string& reason) const {
  fail(ErrorKind::data, "{}: damaged: {}", file_.path(), reason);
}

void ShardFile::read_index() {
  Footer footer;
  if (size_bytes() < sizeof footer) fail_damaged(fmt::format("it has only {} bytes", size_bytes()));
  const std::uint64_t end = size_bytes() - sizeof footer;
  file_.read(end, std::as_writable_bytes(std::span(&footer, 1)));
  if (footer.magic != Footer::kMagic || footer.index_bytes > end)
    fail_damaged("its last bytes are not those of a shard");
  std::string index(footer.index_bytes, '\0');
  const std::uint64_t data_bytes = end - footer.index_bytes;
  file_.read(data_bytes, std::as_writable_bytes(std::span(index)));
  index_crc_ = crc32c(bytes_of(index));
  if (index_crc_ != footer.index_crc) fail_damaged("the checksum of its index is wrong");
  // A valid checksum means that psring wrote the file, maybe another version of psring.
  const std::string context = path() + ": damaged: its index";
  try {
    const Json json = Json::parse(index);
    if (json.at("format") != kShardFormat)
      fail(ErrorKind::data, "{}: format {}, but this version of psring reads format {}", path(), json["format"].dump(),
           kShardFormat);
    step_ = whole_number_at<std::uint64_t>(json, context, "step");
    for (const Json& entry : json.at("segments")) {
      const auto dtype = entry.at("dtype").get<std::string>();
      const auto array = entry.at("array").get<std::string>();
      const char* const expected = entry.contains("rows") ? dtype_of(array) : kF32;
      if (dtype != expected)
        fail(ErrorKind::data, "{}: elements of type {}, but this version of psring reads {}", path(), dtype, expected);
      Segment segment{.tensor = entry.at("tensor").get<std::string>(),
                      .array = array,
                      .range = {whole_number_at<std::size_t>(entry, context, "begin"),
                                whole_number_at<std::size_t>(entry, context, "end")},
                      .offset_bytes = whole_number_at<std::uint64_t>(entry, context, "offset"),
                      .crc = whole_numbers_at<std::uint32_t>(entry, context, "crc32c"),
                      .finite = entry.value("finite", true)};
      if (entry.contains("rows")) {
        segment.rows = whole_number_at<std::size_t>(entry, context, "rows");
        segment.width = whole_number_at<std::size_t>(entry, context, "width");
        if (segment.width == 0 || *segment.rows > data_bytes / sizeof(float) / segment.width)
          fail_damaged(fmt::format("its index is invalid for table '{}'", segment.tensor));
      }
      if (segment.range.empty() || segment.offset_bytes > data_bytes ||
          segment.words() > (data_bytes - segment.offset_bytes) / sizeof(float) ||
          segment.crc.size() != (segment.words() + kSegmentBlock - 1) / kSegmentBlock)
        fail_damaged(fmt::format("its index is invalid for tensor '{}'", segment.tensor));
      segments_.push_back(std::move(segment));
    }
  } catch (const JsonError& error) {
    fail_damaged(fmt::format("its index: {}", error.what()));
  }
}

void ShardFile::read(const Segment& segment, Range range, std::span<float> out) const {
  check(segment.range.contains(range) && out.size() == range.size(), "[{}, {}) is not of the segment", range.begin,
        range.end);
  std::vector<float> values;
  std::size_t index = 0;
  for_each_block(segment.range, [&](Range block) {
    const std::size_t number = index++;
    const Range wanted = block.intersect(range);
    if (wanted.empty()) return;
    read_block(segment, number, values);
    std::memcpy(out.data() + (wanted.begin - range.begin), values.data() + (wanted.begin - block.begin),
                wanted.size() * sizeof(float));
  });
  if (!all_finite(out))
    fail(ErrorKind::data, "{}: {} of '{}' holds NaN or infinity", file_.path(), segment.array, segment.tensor);
}

void ShardFile::read_block(const Segment& segment, std::size_t block, std::vector<float>& words) const {
  const std::size_t begin = block * kSegmentBlock;
  words.resize(std::min(kSegmentBlock, segment.words() - begin));
  const std::uint64_t offset = segment.offset_bytes + begin * sizeof(float);
  const auto bytes = std::as_writable_bytes(std::span(words));
  file_.read(offset, bytes);
  if (crc32c(bytes) != segment.crc[block])
    fail_damaged(fmt::format("{} of '{}', bytes {} to {}, have a wrong checksum", segment.array, segment.tensor, offset,
                             offset + bytes.size()));
}

void ShardFile::verify(const Segment& segment) const {
  std::vector<float> words;
  for (std::size_t block = 0; block < segment.crc.size(); ++block) {
    read_block(segment, block, words);
    if (dtype_of(segment.array) == std::string_view(kF32) && !all_finite(std::span<const float>(words)))
      fail(ErrorKind::data, "{}: {} of '{}' holds NaN or infinity", file_.path(), segment.array, segment.tensor);
  }
}

}  // namespace psring::optim
