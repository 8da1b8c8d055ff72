#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/view/live/file_follower.h>
#include <psring/view/live/state.h>

namespace psring::view {

/// Follows the files of a run folder, and keeps the state of its run. Reads only: the run notices nothing, and may be
/// in progress, have ended, or not have begun.
class RunFiles {
 public:
  /// Returns the number of tokens of a sample of a model; 0 if the model reads no tokens.
  using Tokens = std::function<std::size_t(const std::string& model)>;

  RunFiles(std::filesystem::path folder, Tokens tokens);

  enum class Progress {
    unchanged,
    changed,
    behind,  ///< the files have more: call `look` again at once
  };
  Progress look(Moment now);
  const LiveState& state() const { return state_; }

 private:
  bool read_manifest();
  bool read_statuses(Moment now);
  bool read_end();
  bool is_in_progress() const;

  const std::filesystem::path folder_;
  const Tokens tokens_;
  FileFollower metrics_;
  FileFollower memory_;
  FileFollower recoveries_;
  std::map<std::string, std::int64_t> times_;  ///< when each status file was written
  std::int64_t manifest_time_ = 0;
  LiveState state_;
};

/// Returns whether a process of this host holds the folder's lock (see FolderLock), without touching the lock.
bool is_locked(const std::filesystem::path& folder);

}  // namespace psring::view
