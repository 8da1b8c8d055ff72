#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>

namespace psring::cli {

/// Writes this process's standard output in a separate thread, so that printing never waits for a terminal or pipe that
/// is not read. Unread text is kept in memory. Meanwhile progress lines are skipped (see `stalled`), and beyond kMost
/// all text is dropped. Output to a file is not redirected.
///
/// Make it before the first output, in main's thread. `end` and the destructor return once everything is read, or
/// cannot be read any more.
class Output {
 public:
  static constexpr std::size_t kMost = std::size_t{8} << 20;  ///< maximum of unread bytes

  Output();
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_terminal() const { return terminal_; }
  std::size_t columns() const;
  /// Returns whether text waits to be read.
  bool stalled() const { return waiting_ > 0; }
  /// Call before printing a line on standard error. Returns once all printed text is read, or after a second.
  void settle() const;
  /// Ends the output of this object, and returns the program's status: from here on text is written directly. For
  /// status 0, throws data if some text could not be written; if its reader has left, ends this process by SIGPIPE
  /// instead, as a direct write does, unless the signal is ignored. For a program that a signal ended, text that nobody
  /// reads within a second is dropped.
  int end(int status);

 private:
  void stop(Moment patience);
  void run();
  void take(const char* text, std::size_t size);
  bool write_some();

  const bool terminal_;
  Fd real_;  ///< the original standard output; none if it is written directly
  Fd read_;  ///< the text that is printed
  std::string queue_;
  std::size_t dropped_ = 0;
  std::atomic<std::size_t> waiting_ = 0;
  std::atomic<Moment> patience_ = kNever;  ///< when text that is not read is dropped, once no more is printed
  int failure_ = 0;      ///< the errno of a write that failed; 0: none; while the thread runs, the thread's
  mutable Mutex mutex_;  ///< held while text is taken from read_ and counted in waiting_
  mutable Condition idle_;
  std::jthread thread_;
};

}  // namespace psring::cli
