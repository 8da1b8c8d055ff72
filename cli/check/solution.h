#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/common/proc/signal_watch.h>

namespace psring::cli {

/// Thrown when a signal asked this process to end.
struct Interrupted {
  int signal = 0;
};

/// The end of a command that ran apart.
struct Apart {
  std::optional<ProcessExit> exit;  ///< nothing: its time has passed
  std::string printed;              ///< its output; of a long one, the beginning and the end
};

/// Runs a command in a process of its own for `limit` at most. Nothing that it started runs after the return, nor after
/// an exception: no process that it started through others either, also in a session of its own. Its output goes to
/// `folder`/<name>.log. Throws data if the command cannot be executed, Interrupted if a signal came. REQUIRES: this
/// process has no other children, and starts none meanwhile.
Apart run_apart(const std::string& name, std::vector<std::string> command, const std::filesystem::path& folder,
                Nanoseconds limit, SignalWatch& signals);

/// Lets this process print at most kMostPrinted bytes, errors included, before SIGXFSZ ends it. REQUIRES: run_apart
/// started it.
void limit_output();

constexpr std::size_t kMostPrinted = 16 << 20;

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
