#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <psring/common/base/system/fd.h>

namespace psring {

/// Notices the ends of processes of this host that this process has not started. Belongs to one thread.
class ProcessEnds {
 public:
  /// Throws data if the kernel has no more descriptors.
  ProcessEnds();

  /// Watches the process with this number, under a name of the caller's. Does nothing if the process cannot be watched.
  void watch(std::uint32_t pid, std::string name);
  /// Is readable when `take` has something to return.
  int fd() const { return epoll_.get(); }
  /// The names of the processes that have ended since the last call.
  std::vector<std::string> take();

 private:
  Fd epoll_;
  std::unordered_map<int, std::pair<Fd, std::string>> watched_;  ///< by descriptor
  std::vector<std::string> ended_;                               ///< before they could be watched
};

}  // namespace psring
