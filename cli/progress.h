#pragma once

#include <atomic>
#include <string>
#include <thread>

#include <psring/cli/output.h>
#include <psring/common/base/fd.h>

namespace psring::cli {

/// Shows how far a run is: reads lines of JSON (step, steps, loss, samples, seconds) from a pipe and draws a
/// bar in a terminal, or prints a plain line now and then where the output is none.
class Progress {
 public:
  /// `output` outlives it.
  Progress(std::string label, const Output& output);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  int write_end() const { return write_.get(); }
  /// Call once the writer has been started: the end of its output then ends this.
  void started() { write_ = Fd(); }

 private:
  void show();
  void draw(const std::string& line);

  const std::string label_;
  const Output& output_;
  Fd read_;
  Fd write_;
  std::size_t drawn_ = 0;
  double next_plain_ = 0;  ///< fraction at which the next plain line is due
  std::jthread thread_;
};

}  // namespace psring::cli
