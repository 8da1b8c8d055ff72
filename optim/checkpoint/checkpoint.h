#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <psring/optim/checkpoint/shard.h>

namespace psring::optim {

// A checkpoint is a folder: shards, and a manifest that names them all. Without a whole manifest it is none. What is
// saved is kept by tensor and range, so that any other partition, grouping into units and count of owners reads just
// what it owns. The format is in docs/checkpoints.md.

/// A tensor of the model, and what is saved of it.
struct SavedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<std::string> arrays;

  std::size_t elements() const;
};

struct Manifest {
  std::string run;                           ///< the identity of the run that saved it
  std::uint64_t step = 0;                    ///< updates made; the next step's index, and the sampler's position
  std::map<std::string, std::string> facts;  ///< of the run, which who resumes has to have, too
  std::map<std::string, double> scalars;     ///< of the run's state
  std::vector<SavedTensor> tensors;
};

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kShardSuffix = ".shard";

/// Writes the manifest of the shards that lie in the folder. Throws data where together they do not have each element
/// of each array of each tensor once, of this step; cannot be read; or hold elements that are not finite.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

/// The identity of the run that saved a checkpoint; none if its manifest cannot be read or says none.
std::optional<std::string> run_of(const std::filesystem::path& checkpoint);

struct SavedPlace {
  const ShardFile* shard = nullptr;
  const Segment* segment = nullptr;
};
/// By tensor and array, in order.
using SavedPlaces = std::map<std::pair<std::string, std::string>, std::vector<SavedPlace>>;

/// A whole checkpoint to read from. Opening reads its manifest and its shards' indexes, and checks them against each
/// other. Errors are data errors that name the file. Safe for use from several threads.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  std::uint64_t step() const { return manifest_.step; }

  /// Elements `range` of a unit, of one array; padding is zero, and so is optimizer state of a tensor that was not
  /// trained. Throws data where something is damaged or is not there.
  void read(const UnitLayout& unit, Range range, const std::string& array, std::span<float> out) const;
  /// The checkpoint has a tensor of this name and shape.
  bool has(const std::string& tensor, std::span<const std::size_t> shape) const;
  /// Was optimizer state saved of the tensor, where the rule has any?
  bool was_trained(const std::string& tensor) const;
  /// The ranks of the workers whose residuals (residual_array) were saved, ascending.
  std::vector<std::size_t> residuals() const;
  /// Reads all that there is. Throws data where something is damaged.
  void verify() const;

 private:
  const std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<ShardFile> shards_;
  SavedPlaces places_;
  std::set<std::string> untrained_;  ///< tensors
};

}  // namespace psring::optim
