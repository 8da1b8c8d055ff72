#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/system/fd.h>
#include <psring/view/tensorboard/step_scalars.h>

namespace psring::view {

/// Writes a run's scalars for TensorBoard: tensorboard/events.out.tfevents.<time>.<host>.<pid>.0 in the run folder, a
/// file for each process that writes. Each step reaches the kernel as soon as all workers have recorded it, so a run
/// can be watched, and its file is readable however the run ends. Errors are of kind `data` and name the file.
class TensorBoardWriter {
 public:
  struct Run {
    std::filesystem::path folder;
    std::size_t workers = 1;
    bool own_steps = false;        ///< see StepScalarsBuilder
    std::uint64_t first_step = 0;  ///< the step with which the run, or this part of the run, begins
  };
  /// Creates the file. The files of the run's earlier parts are kept.
  explicit TensorBoardWriter(const Run& run);
  /// The same for a second coordinator: the file begins with the steps that metrics.jsonl has from byte `begin` on,
  /// because the first coordinator may have been lost before it wrote them.
  static TensorBoardWriter continue_part(const Run& run, std::uintmax_t begin);

  /// Takes whole lines that were appended to the file `name` of the run folder; ignores files without metrics.
  void take(const std::string& name, std::string_view lines);
  /// The run has ended: writes the steps that some workers have not recorded, too.
  void finish();

 private:
  TensorBoardWriter(const Run& run, StepScalarsBuilder steps);
  void write(std::string_view records) const;
  void write(const std::vector<StepScalars>& steps) const;

  StepScalarsBuilder steps_;
  std::filesystem::path file_;
  Fd fd_;
};

}  // namespace psring::view
