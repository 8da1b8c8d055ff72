#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace psring::optim {

/// A run's checkpoints, in a folder that all its processes see. One is written aside, in step-<K>.<run>.partial, by all
/// who own a part of the state, each its own shard; when all are on the disk and the manifest is, too, one process
/// gives the folder its name, step-<K>. So whatever is called that is whole, and whenever a process ends, or the power
/// fails, the newest one that was committed is still there.
///
/// One run at a time saves into a folder: its worker 0 locks it. Where the file system has no locks, two runs still do
/// not mix their shards, since each writes in folders that bear its identity; the second to commit a step fails.
class CheckpointFolder {
 public:
  struct Entry {
    std::uint64_t step = 0;
    std::filesystem::path path;
  };

  enum class Leftovers { all, own };

  /// `run`: the identity of the run that saves; may be empty for one that only reads.
  explicit CheckpointFolder(std::filesystem::path folder, std::string run = {})
      : folder_(std::move(folder)), run_(std::move(run)) {}

  /// Those that were committed, oldest first; none where there is no such folder.
  std::vector<Entry> complete() const;

  /// The newest that this run committed.
  std::optional<Entry> newest_own() const;
  /// Has this run committed a checkpoint of the step?
  bool has_own(std::uint64_t step) const;
  /// The newest of all, if its step is after `step` and another run committed it.
  std::optional<Entry> newer_of_another_run(std::uint64_t step) const;
  /// Is this a checkpoint that was committed, and not removed since?
  static bool is_complete(const std::filesystem::path& checkpoint);

  /// Makes the folder. One process, before any writes.
  void create() const;
  /// Removes what was left unfinished: by this run, or by all runs, which needs the folder's lock.
  void clear(Leftovers which) const;
  /// Where the shards and the manifest of a step are written; it is there on return.
  std::filesystem::path aside(std::uint64_t step) const;
  /// Gives what stands aside its name. One process, once all is written. Throws data if there is a checkpoint of this
  /// step already.
  void commit(std::uint64_t step) const;
  /// Removes all but the newest `count` and `in_use` (a path, which may be empty or lie elsewhere); what it removes is
  /// first called unfinished. REQUIRES: count > 0.
  void keep(std::size_t count, const std::filesystem::path& in_use = {}) const;

 private:
  std::filesystem::path partial(std::uint64_t step) const;
  std::filesystem::path whole(std::uint64_t step) const;

  bool is_own(const Entry& entry) const;

  const std::filesystem::path folder_;
  const std::string run_;
};

/// The checkpoint that `given` is, or the newest that it holds; read and checked to the last byte. Throws data where
/// it has none, or where it is damaged: the line names the file, and the newest older checkpoint that is whole.
std::filesystem::path find_checkpoint(const std::filesystem::path& given);

}  // namespace psring::optim
