#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace psring::optim {

/// The checkpoints of a run, in a folder that all its processes see. Every process that owns a part of the state writes
/// its shard into the temporary folder step-<K>.<run>.partial. When all shards and the manifest are on the disk, one
/// process renames the folder to step-<K>. Therefore every folder with that name is complete. If a process ends or the
/// power fails at any time, the newest committed checkpoint still exists.
///
/// Only one run at a time saves into a folder: its worker 0 locks the folder. If the file system has no locks, two runs
/// still do not mix their shards, because the temporary folders contain the run's identity; the second run to commit a
/// step fails.
class CheckpointFolder {
 public:
  struct Entry {
    std::uint64_t step = 0;
    std::filesystem::path path;
  };

  enum class Leftovers { all, own };

  /// `run`: identity of the run that saves; may be empty for a run that only reads.
  explicit CheckpointFolder(std::filesystem::path folder, std::string run = {})
      : folder_(std::move(folder)), run_(std::move(run)) {}

  /// Returns the committed checkpoints, oldest first; none if the folder does not exist.
  std::vector<Entry> complete() const;

  /// Returns the newest checkpoint that this run committed.
  std::optional<Entry> newest_own() const;
  /// Returns whether this run committed a checkpoint of the step.
  bool has_own(std::uint64_t step) const;
  /// Returns the newest checkpoint, if its step is after `step` and another run committed it.
  std::optional<Entry> newer_of_another_run(std::uint64_t step) const;
  /// Returns whether the folder is a checkpoint that was committed and not removed since.
  static bool is_complete(const std::filesystem::path& checkpoint);

  /// Creates the folder. One process calls this function before any process writes.
  void create() const;
  /// Removes the unfinished checkpoints of this run, or of all runs, which requires the folder's lock.
  void clear(Leftovers scope) const;
  /// Creates the temporary folder for the shards and the manifest of a step, and returns its path.
  std::filesystem::path aside(std::uint64_t step) const;
  /// Renames the temporary folder to its final name. One process calls this function once all files are written. Throws
  /// data if there is already a checkpoint of this step.
  void commit(std::uint64_t step) const;
  /// Removes all checkpoints except the newest `count` and `in_use` (a path, which may be empty or lie elsewhere).
  /// Renames a checkpoint to its temporary name before removing it. REQUIRES: count > 0.
  void keep(std::size_t count, const std::filesystem::path& in_use = {}) const;

 private:
  std::filesystem::path partial(std::uint64_t step) const;
  std::filesystem::path whole(std::uint64_t step) const;

  bool is_own(const Entry& entry) const;

  const std::filesystem::path folder_;
  const std::string run_;
};

/// Returns the checkpoint at `given`, or the newest checkpoint in that folder, after reading and checking all its
/// bytes. Throws data if there is none, or if it is damaged. The line names the damaged file, and the newest older
/// checkpoint that is complete.
std::filesystem::path find_checkpoint(const std::filesystem::path& given);

}  // namespace psring::optim
