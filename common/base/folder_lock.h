#pragma once

#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/base/fd.h>

namespace psring {

/// An advisory lock (flock) on a folder: at most one object has it, of all processes of all hosts that see the folder.
/// It ends with the object, and with the process, however that ends.
class FolderLock {
 public:
  enum class Outcome {
    taken,
    in_use,       ///< another has it
    unsupported,  ///< the file system has no locks
  };

  /// Waits for the lock until the deadline. Throws data, naming the folder, if the folder cannot be opened.
  FolderLock(const std::string& folder, const Deadline& deadline);

  Outcome outcome() const { return outcome_; }

  /// Does another process have the folder's lock, and keep it? One that was killed a moment ago may not have let go of
  /// it yet, and another's look takes a moment, too: so this waits up to a second. No, where there is no such folder.
  static bool is_kept(const std::string& folder);

 private:
  const Fd folder_;
  Outcome outcome_ = Outcome::unsupported;
};

}  // namespace psring
