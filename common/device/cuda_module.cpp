#include <array>
#include <filesystem>
#include <string>

#include <dlfcn.h>

#include <psring/common/base/error.h>
#include <psring/common/device/cuda_module.h>
#include <psring/common/device/device.h>

// CUDA's libraries take 80 ms to load and 200 MB of a process. So what needs them is a module, which is loaded by those
// who use a GPU.

namespace psring {
namespace {

constexpr const char* kModule = "libpsring_cuda.so";

/// Where the module may lie: beside this program's folder, as built and as installed; then where it was to be
/// installed.
std::array<std::filesystem::path, 2> module_paths() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return {program.parent_path().parent_path() / PSRING_MODULE_FOLDER / kModule,
          std::filesystem::path(PSRING_MODULE_INSTALLED) / kModule};
}

/// Throws usage where it is in neither place, nor where the system looks for libraries.
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

/// It is loaded with the first call, and never unloaded: CUDA keeps threads.
void* cuda_symbol(const char* name) {
  void* const module = load_module();
  void* const found = ::dlsym(module, name);
  if (found == nullptr) fail(ErrorKind::usage, "--device cuda: {}: of another version than this program", kModule);
  return found;
}

/// A module that is there is not loaded: that takes memory and time, which a launcher does not need.
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
