#pragma once

#include <filesystem>
#include <string>

#include <psring/common/base/error.h>
#include <psring/common/proc/signal_watch.h>

namespace psring::cli {

/// A student's source, compiled as a shared library and loaded into this process.
class Solution {
 public:
  /// Throws data if the library cannot be loaded.
  explicit Solution(const std::filesystem::path& library);
  ~Solution();
  Solution(const Solution&) = delete;
  Solution& operator=(const Solution&) = delete;

  /// Returns the function of this name. Throws data if the source does not define it. REQUIRES: exercise.h declares it
  /// with this type.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

 private:
  void* find(const char* name) const;

  void* library_ = nullptr;
};

/// Compiles a source into the shared library `to`, against the headers beside this program (installed, or in the build
/// tree). Prints the compiler's messages. Throws usage if there is no such compiler, data if the source does not
/// compile or the headers are missing, Interrupted if a signal came. `folder` takes the compiler's log.
void compile_solution(const std::string& compiler, const std::filesystem::path& source, const std::filesystem::path& to,
                      const std::filesystem::path& folder, SignalWatch& signals);

}  // namespace psring::cli
