#include <chrono>
#include <system_error>
#include <vector>

#include <dlfcn.h>

#include <psring/cli/check/apart.h>
#include <psring/cli/check/solution.h>
#include <psring/common/base/standard_files.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kCompileTime{180};
constexpr const char* kHeader = "psring/cli/check/exercise.h";

/// The folder that has psring's headers: include/ of the installation, or of the build tree.
fs::path include_folder() {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& folder : {bin / "../include", bin / "../../include", bin / "../../../include"})
    if (fs::exists(folder / kHeader, error)) return folder.lexically_normal();
  fail(ErrorKind::data,
       "{} is neither installed beside {} nor in its build folder; run the psring that was built or installed", kHeader,
       bin.string());
}

}  // namespace

Solution::Solution(const fs::path& library) : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) fail(ErrorKind::data, "the compiled solution cannot be loaded: {}", ::dlerror());
}

Solution::~Solution() { ::dlclose(library_); }

void* Solution::find(const char* name) const {
  void* const function = ::dlsym(library_, name);
  if (function == nullptr) fail(ErrorKind::data, "the solution defines no function {}; exercise.h declares it", name);
  return function;
}

void compile_solution(const std::string& compiler, const fs::path& source, const fs::path& to, const fs::path& folder,
                      SignalWatch& signals) {
  const fs::path include = include_folder();
  // Assertions of the standard library stop a program that indexes a span or a vector out of its bounds.
  const std::vector<std::string> command = {
      compiler, "-std=c++20", "-O1", "-g",  "-Wall", "-Wextra", "-fPIC", "-shared", "-D_GLIBCXX_ASSERTIONS",
      "-I",     include,      "-x",  "c++", source,  "-o",      to};
  Apart compiled;
  try {
    compiled = run_apart("compiler", command, folder, kCompileTime, signals);
  } catch (const Error&) {
    fail(ErrorKind::usage,
         "the C++ compiler '{}' cannot be run; install g++ (scripts/setup does), or name another with --compiler",
         compiler);
  }
  out::print("{}", compiled.printed);
  const auto& exit = compiled.exit;
  if (!exit) fail(ErrorKind::data, "{}: the compiler takes longer than {} s", source.string(), kCompileTime.count());
  if (exit->status != 0 || exit->signal != 0)
    fail(ErrorKind::data, "{} does not compile; the compiler's messages stand above", source.string());
}

}  // namespace psring::cli
