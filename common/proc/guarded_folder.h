#pragma once

#include <filesystem>
#include <string>
#include <thread>

#include <signal.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/temporary_folder.h>

namespace psring {

/// Blocks termination signals for the lifetime of the object: SIGINT, SIGTERM, SIGHUP, SIGQUIT, and SIGPIPE. A signal
/// that is ignored (nohup, a script's background) ends nothing, and is not held back: blocked, it would stay pending as
/// if it had come to end the process. Make it before the first thread, because threads inherit the signal mask.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();  ///< a signal that has come acts now
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& held() const { return held_; }
  /// Throws peer_lost if a signal has come.
  void check() const;

 private:
  sigset_t held_{};
  sigset_t before_{};
};

/// A temporary folder that is removed, too, if a termination signal ends the process, or if the reader of standard
/// output has left. A thread waits for the signals, and ends the process by them.
class GuardedFolder {
 public:
  /// Throws as TemporaryFolder does.
  explicit GuardedFolder(const std::string& name);
  ~GuardedFolder();

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  void watch() const;

  const HeldSignals signals_;
  const TemporaryFolder folder_;
  const Fd come_;  ///< a signalfd
  const Fd done_;  ///< an eventfd: ends the thread
  std::jthread thread_;
};

}  // namespace psring
