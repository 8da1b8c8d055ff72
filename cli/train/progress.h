#pragma once

#include <string>
#include <thread>

#include <psring/cli/output.h>
#include <psring/common/base/system/fd.h>

namespace psring::cli {

/// Shows the progress of a run: reads lines of JSON (step, steps, loss, samples, tokens, seconds) from a pipe, and
/// draws a bar if the output is a terminal. Otherwise it prints a plain line every fifth of the run.
class Progress {
 public:
  /// REQUIRES: `output` outlives this object.
  Progress(std::string label, const Output& output);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  int write_end() const { return write_.get(); }
  /// Call after the writer has been started: closes this process's copy of the write end, so that the thread ends when
  /// the writer closes its own.
  void started() { write_ = Fd(); }

 private:
  void show();
  void draw(const std::string& line);

  const std::string label_;
  const Output& output_;
  Fd read_;
  Fd write_;
  std::size_t drawn_ = 0;
  double next_plain_ = 0;      ///< fraction of the run at which the next plain line is due
  double next_evaluated_ = 0;  ///< the same for an evaluation
  std::jthread thread_;
};

}  // namespace psring::cli
