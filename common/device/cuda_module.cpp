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

/// Beside this program's folder, as built and as installed; then where it was to be installed; then where the system
/// looks for libraries.
void* load_module() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = program.parent_path().parent_path() / PSRING_MODULE_FOLDER / kModule;
  const auto installed = std::filesystem::path(PSRING_MODULE_INSTALLED) / kModule;
  for (const auto& path : {beside, installed})
    if (std::filesystem::exists(path, error)) {
      if (void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
      fail(ErrorKind::usage, "--device cuda: {}", ::dlerror());
    }
  if (void* const module = ::dlopen(kModule, RTLD_NOW | RTLD_LOCAL)) return module;
  fail(ErrorKind::usage, "--device cuda: {} is not in {}, nor in {}, nor where libraries are looked for", kModule,
       beside.parent_path().string(), installed.parent_path().string());
}

}  // namespace

/// It is loaded with the first call, and never unloaded: CUDA keeps threads.
void* cuda_symbol(const char* name) {
  void* const module = load_module();
  void* const found = ::dlsym(module, name);
  if (found == nullptr) fail(ErrorKind::usage, "--device cuda: {}: of another version than this program", kModule);
  return found;
}

void require_cuda() {}

std::size_t cuda_devices() { return reinterpret_cast<std::size_t (*)()>(cuda_symbol("psring_cuda_devices"))(); }

std::unique_ptr<Device> make_cuda_device(std::size_t index) {
  using Make = Device* (*)(std::size_t);
  return std::unique_ptr<Device>(reinterpret_cast<Make>(cuda_symbol("psring_make_cuda_device"))(index));
}

}  // namespace psring
