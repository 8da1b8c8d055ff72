#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/view/live/state.h>

namespace psring::view {

/// Reads the lines that other processes append to a file. The file may be missing, may end in the middle of a line, may
/// shrink, and may be replaced by another file of the same name.
class FileFollower {
 public:
  /// `tail_bytes`: if the file is longer when it is first seen, reading begins this many bytes before its end.
  explicit FileFollower(std::filesystem::path file, std::uintmax_t tail_bytes = UINTMAX_MAX)
      : file_(std::move(file)), tail_bytes_(tail_bytes) {}

  struct Step {
    std::vector<std::string_view> lines;  ///< without their newlines; valid until the next call
    bool replaced = false;                ///< the file is another one, or has lost lines: these lines are its first
    bool behind = false;                  ///< the file has more
  };
  /// Returns lines that were completed since the last call, at most `kMostBytes` of them.
  Step next();

  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

 private:
  bool is_same_file(int fd, const struct stat& status) const;

  const std::filesystem::path file_;
  const std::uintmax_t tail_bytes_;
  std::uint64_t inode_ = 0;  ///< 0: no file was seen
  std::uint64_t device_ = 0;
  std::uintmax_t offset_ = 0;  ///< begins a line
  bool skipping_ = false;      ///< `offset_` lies within a line, whose rest is skipped
  std::string buffer_;
};

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
