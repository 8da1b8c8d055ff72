#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>

namespace psring {

/// The facts that the first task of a launcher tells the other tasks.
struct MeetingPoint {
  std::string endpoint = {};    ///< HOST:PORT of the job's coordinator; "" if there will be none
  std::string key = {};         ///< content of the job's key file; "" if every task has the file
  std::string run_folder = {};  ///< as the first task sees it
  int status = 0;               ///< without a coordinator: the first task's exit status
};

/// A folder on a file system that all hosts of a job share, in which the tasks of one start meet: task 0 publishes the
/// point, the others read it. The folder must belong to this user and have mode 0700, and each file mode 0600: both
/// are checked on the open descriptor, and symbolic links are not followed. A file appears under its name when it is
/// complete. Errors name the folder or the file.
class MeetingFolder {
 public:
  /// Creates the folder if it is missing. `name`: equal for all tasks of one start, and for no others. Throws data if
  /// the folder cannot be opened, and unauthorised if other users could use it.
  MeetingFolder(std::filesystem::path folder, std::string name);
  /// Removes the files that this object has written, except the mark of `acknowledge`.
  ~MeetingFolder();
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Throws usage if another start has left a file of this name.
  void publish(const MeetingPoint& point);
  /// Returns the point once it is published. Throws unauthorised if the file could be of another user, and data if it
  /// is no point.
  std::optional<MeetingPoint> look() const;
  /// Marks that this task has read the point.
  void acknowledge(std::uint32_t rank) const;
  /// Removes the marks of the tasks 1 to `tasks` - 1 that have acknowledged so far. Returns whether all of them have.
  bool all_acknowledged(std::size_t tasks);

 private:
  Fd open() const;
  void write(const std::string& name, std::string_view text) const;
  std::string mark_of(std::uint32_t rank) const;

  const std::filesystem::path path_;
  const std::string name_;
  bool published_ = false;
  std::set<std::uint32_t> acknowledged_;
};

}  // namespace psring
