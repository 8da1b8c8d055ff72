#include <cerrno>
#include <system_error>

#include <stdlib.h>
#include <unistd.h>

#include <psring/common/base/temporary_folder.h>
#include <psring/common/base/text/error.h>

namespace psring {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const std::string& name) {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (error) fail(ErrorKind::data, "TMPDIR names no folder for temporary files: {}", error.message());
  std::string path = (base / (name + "-XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr)
    fail(ErrorKind::data, "{}: cannot make a folder: {}", path, std::generic_category().message(errno));
  path_ = path;
}

TemporaryFolder::~TemporaryFolder() { remove(); }

/// Under another name first: who writes to the folder by its path does not find it then. A file whose name was looked
/// up before may still come into it.
void TemporaryFolder::remove() const noexcept {
  constexpr int kMostTries = 100;
  const std::string gone = path_.native() + "-removed";
  const char* const left = ::rename(path_.c_str(), gone.c_str()) == 0 ? gone.c_str() : path_.c_str();
  std::error_code ignored;
  for (int tries = 0; tries < kMostTries && ::access(left, F_OK) == 0; ++tries) fs::remove_all(left, ignored);
}

}  // namespace psring
