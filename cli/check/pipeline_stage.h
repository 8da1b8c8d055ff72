#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/cli/check/counted_link.h>
#include <psring/cli/check/exercise.h>
#include <psring/cli/check/ranks.h>
#include <psring/cli/check/stage_model.h>
#include <psring/cli/language.h>

namespace psring::cli {

/// The state that all stages of a run share; one of them at a time runs.
struct PipelineRun {
  std::size_t micro_batches;
  Language language;
  const PipelineReference& reference;
  MessageSizes sizes{};
  std::string mistake{};  ///< the first wrong value that a pass of a stage was given
};

inline constexpr std::chrono::milliseconds kForwardTime{1};  ///< of a micro-batch, in virtual time
inline constexpr std::chrono::milliseconds kBackwardTime{2};

/// The stage that a student's code sees. It computes what it is given, and writes down where that is wrong.
class SimulatedStage final : public exercise::Stage {
 public:
  SimulatedStage(PipelineRun& run, RankSide& side);

  std::size_t stage() const override { return side_.rank; }
  std::size_t stages() const override { return side_.group.size(); }
  std::size_t micro_batches() const override { return run_.micro_batches; }
  std::size_t width() const override { return kStageValues; }

  std::span<float> input(std::size_t micro_batch) override;
  std::span<const float> forward(std::size_t micro_batch) override;
  std::span<const float> loss_gradient(std::size_t micro_batch) override;
  std::span<const float> backward(std::size_t micro_batch, std::span<const float> activation_gradient) override;
  std::span<const float> micro_gradients() const override { return micro_gradients_; }
  std::span<float> gradients() override { return gradients_; }

  void send(std::size_t to, std::span<const float> values) override { link_.send(to, values); }
  void recv(std::size_t from, std::span<float> values) override;

  /// The passes in their order: "F0 F1 B0".
  const std::string& passes() const { return passes_; }
  /// The micro-batches that have not run backward.
  std::vector<std::size_t> unfinished() const;
  /// The largest number of micro-batches that were kept at once, and the passes until then.
  std::size_t most_kept() const { return most_kept_; }
  const std::string& passes_at_most() const { return passes_at_most_; }
  const std::vector<float>& all_gradients() const { return gradients_; }

 private:
  enum class State : std::uint8_t { unknown, has_input, ran_forward, ran_backward };
  struct MicroBatch {
    State state = State::unknown;
    std::vector<float> input;
    std::vector<float> activation;
  };

  MicroBatch& find(const char* call, std::size_t micro_batch);
  void add_pass(char kind, std::size_t micro_batch);
  /// Writes down the mistake if these values are not those of the micro-batch. `activation`: what they may be confused
  /// with; empty: nothing.
  void inspect(char kind, std::size_t micro_batch, std::span<const float> values,
               const std::vector<StageValues>& expected, std::span<const float> activation);

  PipelineRun& run_;
  RankSide& side_;
  CountedLink link_;
  std::vector<MicroBatch> micro_batches_;
  std::vector<float> loss_gradient_;
  std::vector<float> input_gradient_;
  std::vector<float> micro_gradients_;
  std::vector<float> gradients_;
  std::size_t kept_ = 0;
  std::size_t most_kept_ = 0;
  std::string passes_;
  std::string passes_at_most_;
};

}  // namespace psring::cli
