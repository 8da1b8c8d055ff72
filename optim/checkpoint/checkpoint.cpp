#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/json_number.h>
#include <psring/common/base/text/number.h>
#include <psring/optim/checkpoint/checkpoint.h>

namespace psring::optim {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFormat = 1;
constexpr std::uint64_t kMostManifestBytes = std::uint64_t{1} << 30;

/// Returns the start of a manifest; the checksum covers all bytes after the comma.
std::string checksum_of(std::string_view rest) {
  return fmt::format(R"({{"crc32c": "{:08x}",)", crc32c(std::as_bytes(std::span(rest))));
}

std::vector<fs::path> shard_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == kShardSuffix) files.push_back(entry.path());
  if (error) fail(ErrorKind::data, "{}: cannot read: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

struct ShardEntry {
  std::string file;
  std::uint64_t size_bytes = 0;
  std::uint32_t crc = 0;
};

std::vector<ShardEntry> read_manifest(const fs::path& path, Manifest& manifest) {
  const std::string text = read_whole(path, kMostManifestBytes);
  const std::size_t head = checksum_of("").size();
  if (text.size() < head || checksum_of(std::string_view(text).substr(head)) != text.substr(0, head))
    fail(ErrorKind::data, "{}: damaged: its checksum is wrong", path.string());
  std::vector<ShardEntry> shards;
  const std::string context = path.string() + ": damaged";
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat)
      fail(ErrorKind::data, "{}: format {}, but this version of psring reads format {}", path.string(),
           json["format"].dump(), kFormat);
    manifest.run = json.value("run", "");  // checkpoints of earlier versions have none
    manifest.step = whole_number_at<std::uint64_t>(json, context, "step");
    manifest.facts = json.at("facts").get<decltype(manifest.facts)>();
    manifest.scalars = json.at("scalars").get<decltype(manifest.scalars)>();
    for (const Json& tensor : json.at("tensors")) {
      manifest.tensors.push_back({tensor.at("name").get<std::string>(),
                                  whole_numbers_at<std::size_t>(tensor, context, "shape"),
                                  tensor.at("arrays").get<std::vector<std::string>>()});
      if (!tensor.contains("width")) continue;
      manifest.tensors.back().width = whole_number_at<std::size_t>(tensor, context, "width");
      manifest.tensors.back().rows = whole_number_at<std::uint64_t>(tensor, context, "rows");
    }
    for (const Json& shard : json.at("shards"))
      shards.push_back({shard.at("file").get<std::string>(), whole_number_at<std::uint64_t>(shard, context, "bytes"),
                        whole_number_at<std::uint32_t>(shard, context, "crc32c")});
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: damaged: {}", path.string(), error.what());
  }
  return shards;
}

/// Returns the rows of a table. Throws data, naming a file, unless every array has the same rows in the same files.
std::uint64_t count_rows(const fs::path& folder, const SavedTensor& table, const SavedPlaces& places) {
  const auto keys = places.find({table.name, kRowKeys});
  if (keys == places.end()) fail(ErrorKind::data, "{}: table '{}' has no keys", folder.string(), table.name);
  std::uint64_t rows = 0;
  for (const SavedPlace& place : keys->second) rows += place.segment->rows.value_or(0);
  for (const std::string& array : table.arrays) {
    const std::vector<SavedPlace>& all = places.at({table.name, array});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Segment& segment = *all[i].segment;
      const Segment* const of_keys = i < keys->second.size() ? keys->second[i].segment : nullptr;
      const std::size_t width = array == kRowKeys || array == kRowCounts ? 2
                                : array == kValues                       ? table.width
                                                                         : segment.width;
      if (!segment.rows || of_keys == nullptr || of_keys->range != segment.range || of_keys->rows != segment.rows ||
          segment.width != width)
        fail(ErrorKind::data, "{}: {} of table '{}' does not fit the keys", all[i].shard->path(), array, table.name);
    }
  }
  return rows;
}

/// Finds the places of all arrays. Throws data, naming the folder, if an element is missing or present twice.
SavedPlaces find_places(const fs::path& folder, const Manifest& manifest, const std::vector<ShardFile>& shards) {
  SavedPlaces places;
  for (const ShardFile& shard : shards) {
    if (shard.step() != manifest.step)
      fail(ErrorKind::data, "{}: belongs to step {}, but its manifest to step {}", shard.path(), shard.step(),
           manifest.step);
    for (const Segment& segment : shard.segments())
      places[{segment.tensor, segment.array}].push_back({&shard, &segment});
  }
  for (const SavedTensor& tensor : manifest.tensors)
    for (const std::string& array : tensor.arrays) {
      std::vector<SavedPlace>& all = places[{tensor.name, array}];
      std::sort(all.begin(), all.end(),
                [](const auto& a, const auto& b) { return a.segment->range < b.segment->range; });
      std::size_t next = 0;
      const auto wrong = std::find_if(all.begin(), all.end(), [&](const SavedPlace& place) {
        return std::exchange(next, place.segment->range.end) != place.segment->range.begin ||
               place.segment->rows.has_value() != (tensor.width > 0);
      });
      if (wrong != all.end() || next != tensor.elements())
        fail(ErrorKind::data,
             "{}: its {} shards do not contain each of the {} elements of '{}', {}, exactly once (do all "
             "processes see this folder?)",
             folder.string(), shards.size(), tensor.elements(), tensor.name, array);
    }
  return places;
}

}  // namespace

std::size_t SavedTensor::elements() const {
  std::size_t product = 1;
  for (const std::size_t extent : shape) product *= extent;
  return product;
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  std::vector<ShardFile> shards;
  for (const fs::path& file : shard_files(folder)) shards.emplace_back(file.string());
  const SavedPlaces places = find_places(folder, manifest, shards);
  for (const ShardFile& shard : shards)
    for (const Segment& segment : shard.segments())
      if (!segment.finite)
        fail(ErrorKind::data,
             "step {}: {} of '{}' holds NaN or infinity: no checkpoint is written, and earlier ones are kept; a lower "
             "--lr "
             "or --clip-norm may help",
             manifest.step, segment.array, segment.tensor);
  Json tensors = Json::array();
  for (const SavedTensor& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}, {"arrays", tensor.arrays}});
    if (tensor.width == 0) continue;
    tensors.back()["width"] = tensor.width;
    tensors.back()["rows"] = count_rows(folder, tensor, places);
  }
  Json entries = Json::array();
  for (const ShardFile& shard : shards)
    entries.push_back({{"file", fs::path(shard.path()).filename().string()},
                       {"bytes", shard.size_bytes()},
                       {"crc32c", shard.index_crc()}});
  const Json json = {{"format", kFormat},       {"run", manifest.run},         {"step", manifest.step},
                     {"facts", manifest.facts}, {"scalars", manifest.scalars}, {"tensors", tensors},
                     {"shards", entries}};
  const std::string rest = json.dump(1).substr(1) + "\n";  // without the opening brace
  const std::string head = checksum_of(rest);
  OutputFile out((folder / kManifest).string());
  out.write(std::as_bytes(std::span(head)));
  out.write(std::as_bytes(std::span(rest)));
  out.commit();
}

std::optional<std::string> run_of(const fs::path& checkpoint) {
  try {
    Manifest manifest;
    read_manifest(checkpoint / kManifest, manifest);
    if (!manifest.run.empty()) return manifest.run;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
  }
  return std::nullopt;
}

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  const fs::path file = folder / kManifest;
  for (const ShardEntry& entry : read_manifest(file, manifest_)) {
    const ShardFile& shard = shards_.emplace_back((folder / entry.file).string());
    if (shard.size_bytes() != entry.size_bytes || shard.index_crc() != entry.crc)
      fail(ErrorKind::data, "{}: damaged: it is not the file that {} lists", shard.path(), file.string());
  }
  places_ = find_places(folder_, manifest_, shards_);
  for (const SavedTensor& tensor : manifest_.tensors)
    if (tensor.width > 0 && count_rows(folder_, tensor, places_) != tensor.rows)
      fail(ErrorKind::data, "{}: damaged: its shards have other rows of table '{}'", file.string(), tensor.name);
  for (const SavedTensor& tensor : manifest_.tensors)
    if (tensor.arrays == std::vector<std::string>{kValues}) untrained_.insert(tensor.name);
}

const std::vector<SavedPlace>& Checkpoint::places(const std::string& tensor, const std::string& array) const {
  const auto found = places_.find({tensor, array});
  if (found == places_.end()) fail(ErrorKind::data, "{}: has no {} of '{}'", folder_.string(), array, tensor);
  return found->second;
}

bool Checkpoint::has(const SavedTensor& table) const {
  return std::ranges::any_of(manifest_.tensors, [&](const SavedTensor& saved) {
    return saved.name == table.name && saved.width == table.width && saved.arrays == table.arrays;
  });
}

bool Checkpoint::has(const std::string& tensor, std::span<const std::size_t> shape) const {
  return std::ranges::any_of(manifest_.tensors, [&](const SavedTensor& saved) {
    return saved.name == tensor && std::ranges::equal(saved.shape, shape);
  });
}

bool Checkpoint::was_trained(const std::string& tensor) const { return !untrained_.contains(tensor); }

void Checkpoint::read(const UnitLayout& unit, Range range, const std::string& array, std::span<float> out) const {
  check(out.size() == range.size(), "{} elements for a range of {}", out.size(), range.size());
  std::fill(out.begin(), out.end(), 0.0F);
  for (const TensorLayout& tensor : unit.tensors) {
    const Range wanted = Range{tensor.offset, tensor.offset + tensor.spec.elements()}.intersect(range);
    if (wanted.empty()) continue;
    if (array != kValues && !was_trained(tensor.spec.name)) continue;
    const std::vector<SavedPlace>& found = places(tensor.spec.name, array);
    std::size_t got = 0;
    for (const Run& run : runs_of(tensor.spec, {wanted.begin - tensor.offset, wanted.end - tensor.offset}))
      for (const auto& [shard, segment] : found) {
        const Range part = segment->range.intersect({run.whole_begin, run.whole_begin + run.size});
        if (part.empty()) continue;
        const std::size_t begin = tensor.offset + run.begin + (part.begin - run.whole_begin);
        shard->read(*segment, part, out.subspan(begin - range.begin, part.size()));
        got += part.size();
      }
    if (got != wanted.size())
      fail(ErrorKind::data, "{}: '{}' is shorter than the model's", folder_.string(), tensor.spec.name);
  }
}

std::vector<std::size_t> Checkpoint::residuals() const {
  std::set<std::size_t> ranks;
  const std::string prefix = residual_array(0).substr(0, residual_array(0).size() - 1);
  for (const SavedTensor& tensor : manifest_.tensors)
    for (const std::string& array : tensor.arrays) {
      if (!array.starts_with(prefix)) continue;
      if (const auto rank = read_number<std::size_t>(std::string_view(array).substr(prefix.size())))
        ranks.insert(*rank);
    }
  return {ranks.begin(), ranks.end()};
}

void Checkpoint::verify() const {
  for (const ShardFile& shard : shards_)
    for (const Segment& segment : shard.segments()) shard.verify(segment);
}

}  // namespace psring::optim
