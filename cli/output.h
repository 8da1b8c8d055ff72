#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include <psring/common/base/fd.h>

namespace psring::cli {

/// Writes what this process prints to standard output in a thread of its own: whoever prints never waits for a
/// terminal or pipe that nobody reads, and so keeps nobody waiting. Text that is not read lies in memory; progress
/// lines are left out meanwhile (see `stalled`), and beyond kMost everything is. A file is written to as before.
///
/// Make it before the first output, in main's thread. Ends once all is read, or nobody can read it any more.
class Output {
 public:
  static constexpr std::size_t kMost = std::size_t{8} << 20;  ///< bytes that wait to be read

  Output();
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  bool is_terminal() const { return terminal_; }
  std::size_t columns() const;
  /// Does text wait to be read?
  bool stalled() const { return waiting_ > 0; }
  /// Before a line on standard error: returns once all is read that was printed, or after a second.
  void settle() const;

 private:
  void run();
  void take(const char* text, std::size_t size);
  bool give();

  const bool terminal_;
  Fd real_;  ///< standard output as this process was given it; none: it is written to directly
  Fd read_;  ///< what is printed
  std::string queue_;
  std::size_t left_out_ = 0;
  std::atomic<std::size_t> waiting_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable idle_;
  std::jthread thread_;
};

}  // namespace psring::cli
