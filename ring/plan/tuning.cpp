#include <limits>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/ring/plan/tuning.h>

namespace psring::ring {
namespace {

constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 26;
constexpr std::size_t kRest = std::numeric_limits<std::size_t>::max();

}  // namespace

Tuning Tuning::built_in() {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  return {{{2, 65536, Algorithm::exchange, 65536},
           {2, 4 * kMiB, Algorithm::ring, 524288},
           {2, kRest, Algorithm::ring, kMiB},
           {3, 16384, Algorithm::exchange, 65536},
           {3, 4 * kMiB, Algorithm::ring, 524288},
           {3, kRest, Algorithm::ring, kMiB},
           {4, 16384, Algorithm::doubling, 65536},
           {4, kMiB, Algorithm::halving_doubling, 524288},
           {4, 4 * kMiB, Algorithm::ring, 524288},
           {4, kRest, Algorithm::ring, kMiB}}};
}

Tuning Tuning::load(const std::string& file) {
  const std::string text = read_text(file, kMostFileBytes);
  try {
    return from_json(text);
  } catch (const Error& error) {
    throw error.with_context(file);
  }
}

Tuning Tuning::from_json(const std::string& text) {
  const std::optional<Json> json = Json::try_parse(text);
  if (!json || !json->contains("all_reduce") || !json->at("all_reduce").is_array())
    fail(ErrorKind::data, "no tuning table: expected an object with an array 'all_reduce'");
  Tuning tuning;
  for (const Json& each : json->at("all_reduce")) {
    const auto number = [&](const char* key) -> std::size_t {
      if (!each.contains(key) || !each[key].is_number_unsigned())
        fail(ErrorKind::data, "a row of the tuning table lacks the number '{}'", key);
      return each[key].get<std::size_t>();
    };
    if (!each.contains("algorithm") || !each["algorithm"].is_string())
      fail(ErrorKind::data, "a row of the tuning table lacks its 'algorithm'");
    Row row{number("ranks"), number("up_to_bytes"), parse_algorithm("algorithm", each["algorithm"].get<std::string>()),
            number("segment_bytes")};
    if (row.segment_bytes < 64 || row.segment_bytes > (std::size_t{8} << 20))
      fail(ErrorKind::data, "segment_bytes of the tuning table: expected 64 to 8 MiB, got {}", row.segment_bytes);
    tuning.rows.push_back(row);
  }
  if (tuning.rows.empty()) fail(ErrorKind::data, "the tuning table is empty");
  return tuning;
}

std::string Tuning::to_json() const {
  Json json;
  for (const Row& row : rows)
    json["all_reduce"].push_back({{"ranks", row.ranks},
                                  {"up_to_bytes", row.up_to_bytes},
                                  {"algorithm", to_string(row.algorithm)},
                                  {"segment_bytes", row.segment_bytes}});
  return json.dump(2);
}

Tuning::Row Tuning::pick(std::size_t ranks, std::size_t bytes) const {
  // Take the largest number of ranks that is not above ours; if all rows are above, take the smallest.
  std::size_t nearest = 0;
  for (const Row& row : rows)
    if (row.ranks <= ranks) nearest = std::max(nearest, row.ranks);
  if (nearest == 0) {
    nearest = kRest;
    for (const Row& row : rows) nearest = std::min(nearest, row.ranks);
  }
  const Row* found = nullptr;
  for (const Row& row : rows) {
    if (row.ranks != nearest) continue;
    const bool fits = bytes <= row.up_to_bytes;
    const bool better = found == nullptr || (fits ? bytes > found->up_to_bytes || row.up_to_bytes < found->up_to_bytes
                                                  : bytes > found->up_to_bytes && row.up_to_bytes > found->up_to_bytes);
    if (better) found = &row;
  }
  return found == nullptr ? Row{} : *found;
}

}  // namespace psring::ring
