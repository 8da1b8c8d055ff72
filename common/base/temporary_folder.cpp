#include <cerrno>
#include <system_error>

#include <stdlib.h>

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

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace psring
