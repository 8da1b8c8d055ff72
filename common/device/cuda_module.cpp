#include <array>
#include <filesystem>

#include <dlfcn.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda_module.h>
#include <psring/common/device/device.h>

// CUDA's libraries take 80 ms to load and 200 MB of memory. Therefore the code that needs them is a separate module,
// which only processes with a GPU load.

namespace psring {
namespace {

constexpr const char* kModule = "libpsring_cuda.so";

/// Returns the places where the module may lie: next to the folder of this program, as in the build and in an
/// installation; then the configured installation folder.
std::array<std::filesystem::path, 2> module_paths() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return {program.parent_path().parent_path() / PSRING_MODULE_FOLDER / kModule,
          std::filesystem::path(PSRING_MODULE_INSTALLED) / kModule};
}

/// Loads the module. Throws usage if neither these folders nor the system's library path have the module.
void* load_module() {
  std::error_code error;
  const auto paths = module_paths();
  for (const auto& path : paths)
    if (std::filesystem::exists(path, error)) {
      if (void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
      fail(ErrorKind::usage, "--device cuda: {}", ::dlerror());
    }
  if (void* const module = ::dlopen(kModule, RTLD_NOW | RTLD_LOCAL)) return module;
  fail(ErrorKind::usage,
       "--device cuda: built without CUDA; use --device cpu (no {} in {} or {}; cmake -DPSRING_CUDA=ON builds it)",
       kModule, paths[0].parent_path().string(), paths[1].parent_path().string());
}

}  // namespace

/// Loads the module with the first call. The module is never unloaded, because CUDA's threads keep running.
void* cuda_symbol(const char* name) {
  void* const module = load_module();
  void* const found = ::dlsym(module, name);
  if (found == nullptr)
    fail(ErrorKind::usage,
         "--device cuda: {} belongs to another version of psring than this program; install both from one build",
         kModule);
  return found;
}

/// Checks that the module exists, without loading it. Loading takes memory and time, and a launcher does not need the
/// module.
void require_cuda() {
  std::error_code error;
  for (const auto& path : module_paths())
    if (std::filesystem::exists(path, error)) return;
  load_module();
}

std::size_t cuda_devices() { return reinterpret_cast<std::size_t (*)()>(cuda_symbol("psring_cuda_devices"))(); }

std::unique_ptr<Device> make_cuda_device(std::size_t index) {
  using Make = Device* (*)(std::size_t);
  return std::unique_ptr<Device>(reinterpret_cast<Make>(cuda_symbol("psring_make_cuda_device"))(index));
}

}  // namespace psring
