#include <array>
#include <filesystem>

#include <dlfcn.h>

#include <psring/common/base/text/error.h>
#include <psring/view/live/http.h>

namespace psring::view {
namespace {

constexpr const char* kModule = "libpsring_http.so";

}  // namespace

/// The module lies next to the folder of this program, as in the build and in an installation, or in the configured
/// installation folder.
std::string http_module_path() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::array<std::filesystem::path, 2> folders{program.parent_path().parent_path() / PSRING_MODULE_FOLDER,
                                                     PSRING_MODULE_INSTALLED};
  for (const auto& folder : folders)
    if (std::filesystem::exists(folder / kModule, error)) return folder / kModule;
  fail(ErrorKind::usage, "the live view needs {}, which is neither in {} nor in {}", kModule, folders[0].string(),
       folders[1].string());
}

std::unique_ptr<HttpFormat> load_http() {
  void* const module = ::dlopen(http_module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const make = module == nullptr ? nullptr : ::dlsym(module, "psring_make_http_format");
  if (make == nullptr) fail(ErrorKind::usage, "the live view: {}", ::dlerror());
  return std::unique_ptr<HttpFormat>(reinterpret_cast<HttpFormat* (*)()>(make)());
}

}  // namespace psring::view
