#pragma once

#include <filesystem>
#include <string>

namespace psring {

/// A folder among the system's temporary files that exists as long as the object.
class TemporaryFolder {
 public:
  /// `name`: the beginning of the folder's name. Throws data if the folder cannot be made.
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Removes the folder before the object's end, while other threads and processes may still write into it.
  void remove() const noexcept;

 private:
  std::filesystem::path path_;
};

}  // namespace psring
