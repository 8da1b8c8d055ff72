#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/rng.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/keyed/every_tenth.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/keyed/tsv.h>

namespace psring::worker {
namespace {

constexpr std::uint32_t kNegatives = 24;  // the random stream: CounterRng's `tensor`
constexpr std::size_t kMostTries = 64;
constexpr std::size_t kMostNegatives = 1'000'000;  // of an edge

/// Packages with their features, and edges between packages. Sample (1 + negatives) e is edge e.
class PackageGraph final : public Dataset {
 public:
  PackageGraph(const TsvFile& packages, const TsvFile& edges, std::size_t negatives, std::uint64_t seed)
      : negatives_(negatives), seed_(seed) {
    std::unordered_map<std::string, std::uint32_t> numbers;
    TsvFile::Line line;
    for (std::size_t i = 0; i < packages.size(); ++i) {
      packages.read(i, line);
      if (!numbers.emplace(line.columns[0], static_cast<std::uint32_t>(i)).second)
        packages.refuse(line, 0, fmt::format("package '{:.80}' has two lines", line.columns[0]));
      offsets_.push_back(features_.size());
      for (std::size_t column = 1; column < line.columns.size(); ++column)
        features_.push_back(key_of_text(line.columns[column]));
      most_ = std::max(most_, line.columns.size() - 1);
    }
    offsets_.push_back(features_.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      edges.read(i, line);
      if (line.columns.size() != 2)
        edges.refuse(line, {}, fmt::format("{} columns, 2 expected (package, dependency)", line.columns.size()));
      const auto package = [&](std::size_t column) {
        const auto found = numbers.find(std::string(line.columns[column]));
        if (found == numbers.end())
          edges.refuse(line, column, fmt::format("{} has no package '{:.80}'", packages.path(), line.columns[column]));
        return found->second;
      };
      edges_.emplace_back(package(0), package(1));
    }
    known_ = edges_;
    std::ranges::sort(known_);
  }

  std::size_t size() const override { return edges_.size() * (1 + negatives_); }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::size_t index, const SampleMemory& to) const override {
    to.classes[0] = index % (1 + negatives_) == 0 ? 1 : 0;
  }
  std::vector<KeyField> key_fields() const override { return {{"package", most_}, {"dependency", most_}}; }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    auto [package, dependency] = edges_.at(index / (1 + negatives_));
    if (index % (1 + negatives_) != 0) {
      const CounterRng rng({.seed = seed_,
                            .purpose = Purpose::synthetic,
                            .tensor = kNegatives,
                            .step = static_cast<std::uint32_t>(index),
                            .micro = static_cast<std::uint16_t>(index >> 32)});
      // A package that depends on all that is ever drawn keeps its last draw.
      for (std::size_t draw = 0; draw < kMostTries; ++draw) {
        dependency = edges_[std::uint64_t{rng.bits(draw)} * edges_.size() >> 32].second;
        if (!std::ranges::binary_search(known_, std::pair(package, dependency))) break;
      }
    }
    counts[0] = append_features(package, keys);
    counts[1] = append_features(dependency, keys);
  }

 private:
  std::uint32_t append_features(std::uint32_t package, std::vector<std::uint64_t>& keys) const {
    const std::span<const std::uint64_t> own =
        std::span(features_).subspan(offsets_[package], offsets_[package + 1] - offsets_[package]);
    keys.insert(keys.end(), own.begin(), own.end());
    return static_cast<std::uint32_t>(own.size());
  }

  const std::size_t negatives_;
  const std::uint64_t seed_;
  std::vector<std::uint64_t> features_;  ///< keys, package by package
  std::vector<std::size_t> offsets_;     ///< by package, and the end
  std::size_t most_ = 0;                 ///< features of a package
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> known_;  ///< the edges in ascending order
};

}  // namespace

DataSplit make_debian_data(const Spec& spec, const DataNeeds& needs) {
  path_of(spec, "debian:DIR");
  const Spec named = spec.with_free_text_as("dir");
  named.allow_only({"dir", "negatives", "seed"});
  if (needs.key_fields != 2)
    fail_misfit(spec, needs, fmt::format("its samples have 2 key fields, the model reads {}", needs.key_fields));
  const std::string dir = named.string("dir", "");
  const std::size_t negatives = named.positive("negatives", 1, kMostNegatives);
  const TsvFile packages(dir + "/packages.tsv");
  const TsvFile edges(dir + "/edges.tsv");
  const auto all = std::make_shared<const PackageGraph>(packages, edges, negatives, named.positive("seed", needs.seed));
  DataSplit split = every_tenth(all, 1 + negatives, edges.path());
  split.fingerprint = [first = packages.path(), second = edges.path(), negatives, seed = named.string("seed", "")] {
    return fmt::format("{}; {}; negatives={}{}{}", fingerprint_of(InputFile(first)), fingerprint_of(InputFile(second)),
                       negatives, seed.empty() ? "" : ",seed=", seed);
  };
  return split;
}

}  // namespace psring::worker
