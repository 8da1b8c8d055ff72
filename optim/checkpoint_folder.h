#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

namespace psring::optim {

/// A run's checkpoints, in a folder that all its processes see. One is written aside, in step-<K>.partial, by all who
/// own a part of the state, each its own shard; when all are on the disk and the manifest is, too, one process gives
/// the folder its name, step-<K>. So whatever is called that is whole, and whenever a process ends, or the power
/// fails, the newest one that was committed is still there.
class CheckpointFolder {
 public:
  struct Entry {
    std::uint64_t step = 0;
    std::filesystem::path path;
  };

  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Those that were committed, oldest first; none where there is no such folder.
  std::vector<Entry> complete() const;

  /// Is this a checkpoint that was committed, and not removed since?
  static bool is_complete(const std::filesystem::path& checkpoint);

  /// Makes the folder, and removes what runs before left unfinished. One process, before any writes.
  void prepare() const;
  /// Where the shards and the manifest of a step are written; it is there on return.
  std::filesystem::path aside(std::uint64_t step) const;
  /// Gives what stands aside its name. One process, once all is written. REQUIRES: no checkpoint of this step.
  void commit(std::uint64_t step) const;
  /// Removes all but the newest `count` and `in_use` (a path, which may be empty or lie elsewhere); what it removes is
  /// first called unfinished. REQUIRES: count > 0.
  void keep(std::size_t count, const std::filesystem::path& in_use = {}) const;

 private:
  std::filesystem::path partial(std::uint64_t step) const;
  std::filesystem::path whole(std::uint64_t step) const;

  const std::filesystem::path folder_;
};

/// The checkpoint that `given` is, or the newest that it holds; read and checked to the last byte. Throws data where
/// it has none, or where it is damaged: the line names the file, and the newest older checkpoint that is whole.
std::filesystem::path find_checkpoint(const std::filesystem::path& given);

}  // namespace psring::optim
