#pragma once

#include <string>

#include <psring/common/base/deadline.h>
#include <psring/common/base/system/fd.h>

namespace psring {

/// An advisory lock (flock) on a folder. At most one object holds it, among all processes of all hosts that see the
/// folder. The lock ends with the object, and with the process, even if the process is killed and others that were
/// forked from it live on.
class FolderLock {
 public:
  enum class Outcome {
    taken,
    in_use,       ///< another object holds the lock
    unsupported,  ///< the file system does not support locks
  };

  /// Waits for the lock until the deadline. Throws data, naming the folder, if the folder cannot be opened.
  FolderLock(const std::string& folder, const Deadline& deadline);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  Outcome outcome() const { return outcome_; }

  /// Returns whether another process holds the folder's lock; false if the folder does not exist. Waits up to a second,
  /// because a process that was just killed may not have released the lock yet, and another process may hold the lock
  /// only to check it.
  static bool is_held_by_other(const std::string& folder);

 private:
  struct Open;
  /// Makes a forked process close the folder.
  struct Registration {
    explicit Registration(FolderLock* lock);
    ~Registration();
    FolderLock* const lock;
  };

  Fd folder_;
  const Registration registration_;
  Outcome outcome_ = Outcome::unsupported;
};

}  // namespace psring
