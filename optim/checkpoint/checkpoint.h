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

// A checkpoint is a folder of shards with a manifest that lists them all. A folder without a complete manifest is not a
// checkpoint. The state is saved by tensor and range, so that a job with another partition, other units or another
// number of owners can read exactly the ranges that it owns. The format is in docs/checkpoints.md.

/// A tensor of the model, and the arrays that are saved for it. A table has the shape [kBuckets], its hash buckets.
struct SavedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<std::string> arrays;
  std::size_t width = 0;   ///< elements of a table's row; 0: not a table
  std::uint64_t rows = 0;  ///< of a table; write_manifest counts them

  std::size_t elements() const;
};

struct Manifest {
  std::string run;                           ///< identity of the run that saved the checkpoint
  std::uint64_t step = 0;                    ///< number of updates made: the index of the next step, and the sampler's
                                             ///< position
  std::map<std::string, std::string> facts;  ///< facts about the run that a resuming run must share
  std::map<std::string, double> scalars;     ///< scalars of the run's state
  std::vector<SavedTensor> tensors;
};

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kShardSuffix = ".shard";

/// Writes the manifest of the shards in the folder. Throws data if a shard cannot be read, belongs to another step, or
/// holds elements that are not finite, or if the shards together do not contain each element of each array of each
/// tensor exactly once.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

/// Returns the identity of the run that saved a checkpoint; nothing if the manifest cannot be read or has no identity.
std::optional<std::string> run_of(const std::filesystem::path& checkpoint);

struct SavedPlace {
  const ShardFile* shard = nullptr;
  const Segment* segment = nullptr;
};
/// The places by tensor and array, in order of range.
using SavedPlaces = std::map<std::pair<std::string, std::string>, std::vector<SavedPlace>>;

/// A complete checkpoint to read from. The constructor reads the manifest and the shards' indexes, and checks them
/// against each other. Errors are data errors that name the file. Safe for use from several threads.
class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  std::uint64_t step() const { return manifest_.step; }

  /// Reads the unit's elements `range` of one array. Padding is zero; optimizer state is zero for a tensor that was not
  /// trained. Throws data if an element is damaged or missing.
  void read(const UnitLayout& unit, Range range, const std::string& array, std::span<float> out) const;
  /// Returns the places of an array, in order of range. Throws data, naming the folder, if there are none.
  const std::vector<SavedPlace>& places(const std::string& tensor, const std::string& array) const;
  /// Returns whether the checkpoint has a table of this name and width, with these arrays.
  bool has(const SavedTensor& table) const;
  /// Returns whether the checkpoint has a tensor of this name and shape.
  bool has(const std::string& tensor, std::span<const std::size_t> shape) const;
  /// Returns whether optimizer state was saved for the tensor, if the rule has any state.
  bool was_trained(const std::string& tensor) const;
  /// Returns the ranks of the workers whose residuals (residual_array) were saved, ascending.
  std::vector<std::size_t> residuals() const;
  /// Reads and checks everything. Throws data if anything is damaged.
  void verify() const;

 private:
  const std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<ShardFile> shards_;
  SavedPlaces places_;
  std::set<std::string> untrained_;  ///< names of tensors
};

}  // namespace psring::optim
