// Exercise 14: the schedule and the gradients of a pipeline with micro-batches.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <psring/cli/check/ranks.h>
#include <psring/cli/check/references.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 1e-5;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr unsigned kSeeds = 100;
constexpr double kSlack = 1.02;                       ///< times the passes alone: the time of messages
constexpr std::chrono::milliseconds kForwardTime{1};  ///< of a micro-batch, in virtual time
constexpr std::chrono::milliseconds kBackwardTime{2};

struct Job {
  std::size_t stages = 1;
  std::size_t micro_batches = 1;
  std::uint64_t seed = 0;
};

/// The outcome of a stage.
struct StageEnd {
  std::vector<float> gradients = std::vector<float>(kStageParameters);
  std::string passes{};                   ///< in their order: "F0 F1 B0"
  std::vector<std::size_t> unfinished{};  ///< the micro-batches that have not run backward
  std::size_t most_kept = 0;              ///< the largest number of micro-batches that were kept at once
  std::string passes_at_most{};           ///< the passes until then
  Nanoseconds took{0};                    ///< from the step's begin to its end
};

/// A step of all stages; one of them at a time runs.
struct Run {
  std::size_t micro_batches;
  const PipelineReference& reference;
  std::vector<StageEnd> stages;
  MessageSizes sizes{};
  std::optional<Message> mistake{};  ///< the first wrong value that a pass of a stage was given
  RanksEnd end{};
};

/// The stage that a student's code sees.
class SimulatedStage final : public exercise::Stage {
 public:
  SimulatedStage(Run& run, RankSide& side)
      : run_(run),
        side_(side),
        end_(run.stages[side.rank]),
        link_(side, run.sizes, "stage"),
        micro_batches_(run.micro_batches) {}

  std::size_t stage() const override { return side_.rank; }
  std::size_t stages() const override { return side_.group.size(); }
  std::size_t micro_batches() const override { return run_.micro_batches; }
  std::size_t width() const override { return kStageValues; }
  std::span<const float> micro_gradients() const override { return micro_gradients_; }
  std::span<float> gradients() override { return end_.gradients; }
  void send(std::size_t to, std::span<const float> values) override { link_.send(to, values); }
  void recv(std::size_t from, std::span<float> values) override {
    link_.recv(from, values, end_.passes.empty() ? " before its first pass" : " after " + end_.passes);
  }

  std::span<float> input(std::size_t micro_batch) override {
    MicroBatch& entry = find("input", micro_batch);
    if (entry.state == State::ran_backward)
      fail(ErrorKind::usage, "input({0}): backward of micro-batch {0} has freed it", micro_batch);
    if (entry.state == State::unknown) {
      entry.state = State::has_input;
      entry.input = stage() == 0 ? floats(stage_samples(micro_batch)) : std::vector<float>(kStageValues, kNotANumber);
      side_.memory.book(Category::activations, kStageValues * sizeof(float));
      if (++kept_ > end_.most_kept) {
        end_.most_kept = kept_;
        end_.passes_at_most = end_.passes;
      }
    }
    return entry.input;
  }

  std::span<const float> forward(std::size_t micro_batch) override {
    MicroBatch& entry = find("forward", micro_batch);
    if (entry.state == State::unknown && stage() == 0) input(micro_batch);
    if (entry.state == State::unknown)
      fail(ErrorKind::usage, "forward({0}): receive the activation of micro-batch {0} into input({0}) first",
           micro_batch);
    if (entry.state != State::has_input)
      fail(ErrorKind::usage, "forward({0}): micro-batch {0} has run forward already", micro_batch);
    inspect(true, micro_batch, entry.input, run_.reference.inputs[stage()], {});
    const Events::Span span(side_.events, {.name = "forward", .unit = static_cast<std::uint32_t>(stage())});
    side_.compute(kForwardTime);
    entry.state = State::ran_forward;
    entry.activation = floats(stage_forward(parameters_, values_of(entry.input)));
    add_pass('F', micro_batch);
    return entry.activation;
  }

  std::span<const float> loss_gradient(std::size_t micro_batch) override {
    MicroBatch& entry = find("loss_gradient", micro_batch);
    if (stage() + 1 != stages())
      fail(ErrorKind::usage, "loss_gradient({}): the last stage, {}, has the loss; stage {} receives its gradient",
           micro_batch, stages() - 1, stage());
    if (entry.state != State::ran_forward)
      fail(ErrorKind::usage, "loss_gradient({0}): call it between forward({0}) and backward({0})", micro_batch);
    loss_gradient_ = floats(stage_loss_gradient(micro_batch, values_of(entry.activation)));
    return loss_gradient_;
  }

  std::span<const float> backward(std::size_t micro_batch, std::span<const float> activation_gradient) override {
    MicroBatch& entry = find("backward", micro_batch);
    if (entry.state == State::ran_backward)
      fail(ErrorKind::usage, "backward({0}): micro-batch {0} has run backward already", micro_batch);
    if (entry.state != State::ran_forward)
      fail(ErrorKind::usage, "backward({0}): micro-batch {0} has not run forward", micro_batch);
    if (activation_gradient.size() != kStageValues)
      fail(ErrorKind::usage, "backward({}): the gradient has {} values, the activation {}", micro_batch,
           activation_gradient.size(), kStageValues);
    inspect(false, micro_batch, activation_gradient, run_.reference.activation_gradients[stage()], entry.activation);
    const StageGradients gradients =
        stage_backward(parameters_, values_of(entry.input), values_of(activation_gradient));
    const Events::Span span(side_.events, {.name = "backward", .unit = static_cast<std::uint32_t>(stage())});
    side_.compute(kBackwardTime);
    input_gradient_ = floats(gradients.input);
    micro_gradients_ = floats(gradients.parameters);
    entry.state = State::ran_backward;
    std::fill(entry.input.begin(), entry.input.end(), kNotANumber);  // so that a pointer into the freed input shows
    side_.memory.release(Category::activations, kStageValues * sizeof(float));
    --kept_;
    add_pass('B', micro_batch);
    return input_gradient_;
  }

  void finish() {
    for (std::size_t m = 0; m < micro_batches_.size(); ++m)
      if (micro_batches_[m].state != State::ran_backward) end_.unfinished.push_back(m);
  }

 private:
  enum class State : std::uint8_t { unknown, has_input, ran_forward, ran_backward };
  struct MicroBatch {
    State state = State::unknown;
    std::vector<float> input;
    std::vector<float> activation;
  };

  Values values_of(std::span<const float> values) const { return like(run_.reference.inputs[0][0], values); }

  MicroBatch& find(const char* call, std::size_t micro_batch) {
    if (micro_batch >= micro_batches_.size())
      fail(ErrorKind::usage, "{}({}): there are micro-batches 0 to {}", call, micro_batch, micro_batches_.size() - 1);
    return micro_batches_[micro_batch];
  }

  void add_pass(char kind, std::size_t micro_batch) {
    end_.passes += fmt::format("{}{}{}", end_.passes.empty() ? "" : " ", kind, micro_batch);
  }

  /// Writes down the mistake if these values are not those of the micro-batch. `activation`: what they may be confused
  /// with; empty: nothing.
  void inspect(bool forward, std::size_t micro_batch, std::span<const float> values,
               const std::vector<Values>& expected, std::span<const float> activation) {
    const auto is = [&](const Values& others) { return all_near(values, others, kTolerance); };
    if (run_.mistake || is(expected[micro_batch])) return;
    // A loss may also be divided by the number of micro-batches where it is calculated; then all gradients are.
    if (!forward && is(expected[micro_batch] / static_cast<double>(run_.micro_batches))) return;
    const auto other = std::find_if(expected.begin(), expected.end(), is);
    const Message cause = std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); })
                              ? Message({"it was not received", "还没有接收"})
                          : std::all_of(values.begin(), values.end(), [](float value) { return value == 0; })
                              ? Message({"it is zero: was it received?", "它是零：接收了吗？"})
                          : !activation.empty() && is(values_of(activation))
                              ? Message({"it is the activation itself", "它是激活值本身"})
                          : other != expected.end()
                              ? Message({"it is that of micro-batch {}", "它属于微批 {}"}, other - expected.begin())
                              : Message({"its first value is {:.5g}, not {:.5g}", "它的第一个值是 {:.5g}，应为 {:.5g}"},
                                        values[0], expected[micro_batch].data()[0]);
    const Text text = forward
                          ? Text{"stage {}, forward of micro-batch {}: the input is wrong: {}",
                                 "阶段 {} 对微批 {} 做前向：输入不对：{}"}
                          : Text{"stage {}, backward of micro-batch {}: the gradient of the activation is wrong: {}",
                                 "阶段 {} 对微批 {} 做反向：激活值的梯度不对：{}"};
    run_.mistake = Message(text, stage(), micro_batch, cause);
  }

  Run& run_;
  RankSide& side_;
  StageEnd& end_;
  CountedLink link_;
  const Values parameters_ = stage_parameters(stage());
  std::vector<MicroBatch> micro_batches_;
  std::vector<float> loss_gradient_;
  std::vector<float> input_gradient_;
  std::vector<float> micro_gradients_ = std::vector<float>(kStageParameters, kNotANumber);
  std::size_t kept_ = 0;
};

Run run_job(const Submission& submission, const Job& job, const PipelineReference& reference,
            std::optional<Language> record) {
  RanksOptions options{.ranks = job.stages,
                       .seed = job.seed,
                       .link = {1e9, std::chrono::microseconds(1)},
                       .record = record,
                       .label = submission.file.filename().string()};
  for (std::size_t stage = 0; stage < job.stages; ++stage)
    options.units.emplace_back(fmt::format("stage {}", stage), kStageParameters);
  auto* const pipeline_step = submission.solution->function<void(exercise::Stage&)>("pipeline_step");
  Run run{job.micro_batches, reference, std::vector<StageEnd>(job.stages)};
  run.end = run_ranks(options, [&](RankSide& side) {
    SimulatedStage stage(run, side);
    const Moment began = side.clock.now();
    side.events.begin_step(0);
    {
      const Events::Span span(side.events, {.name = "step"});
      pipeline_step(stage);
    }
    run.stages[side.rank].took = side.clock.now() - began;
    stage.finish();
  });
  return run;
}

Values sum_of(const std::vector<Values>& gradients) {
  Values sum = gradients[0];
  for (std::size_t m = 1; m < gradients.size(); ++m) sum += gradients[m];
  return sum;
}

/// The likely mistake behind wrong gradients of a stage. `gradients`: of each micro-batch.
Message cause_of(const std::vector<float>& found, const std::vector<Values>& gradients) {
  const std::size_t count = gradients.size();
  const auto m = static_cast<double>(count);
  const Values sum = sum_of(gradients);
  const auto is = [&](const Values& values) { return all_near(found, values, kTolerance); };
  if (std::any_of(found.begin(), found.end(), [](float value) { return std::isnan(value); }))
    return {{"it is no number: micro_gradients has values only after backward",
             "它不是数：micro_gradients 在反向之后才有值"}};
  if (std::all_of(found.begin(), found.end(), [](float value) { return value == 0; }))
    return {{"gradients() was never written: add micro_gradients() after each backward",
             "从未写过 gradients()：每次反向之后加上 micro_gradients()"}};
  if (is(sum))
    return {{"the sum over the {0} micro-batches was not divided by {0}", "{0} 个微批之和没有除以 {0}"}, count};
  if (is(sum / m / m)) return {{"it was divided by {} twice", "除以了两次 {}"}, count};
  for (std::size_t one = 0; one < count; ++one) {
    const auto is_any = [&](const Values& values) { return is(values) || is(values / m); };
    if (is_any(gradients[one]))
      return {{"it is that of micro-batch {} alone: the micro-batches add up, each with 1/{}",
               "它只是微批 {} 的梯度：各个微批要相加，每个乘以 1/{}"},
              one,
              count};
    if (is_any(sum - gradients[one])) return {{"micro-batch {} is missing", "缺少微批 {}"}, one};
    if (is_any(sum + gradients[one])) return {{"micro-batch {} was added twice", "微批 {} 加了两次"}, one};
  }
  return {{"it is not the mean over the {} micro-batches", "它不是 {} 个微批的平均值"}, count};
}

void require_right(const Run& run) {
  if (run.mistake) throw Mistake{*run.mistake};
  run.end.require_good(
      run.stages.size(),
      {"deadlock (rank s is stage s): {1}. Does the other stage send this message before it waits itself?",
       "死锁（rank s 就是阶段 s）：{1}。对方是否在自己等待之前就发送了这条消息？"},
      {"{1}", "{1}"});
  for (std::size_t stage = 0; stage < run.stages.size(); ++stage)
    if (const StageEnd& end = run.stages[stage]; !end.unfinished.empty())
      refuse({"stage {} has not run backward of micro-batch {}; its passes were: {}",
              "阶段 {} 没有对微批 {} 做反向；它的各遍是：{}"},
             stage, end.unfinished[0], end.passes.empty() ? "-" : end.passes);
  for (std::size_t stage = 0; stage < run.stages.size(); ++stage) {
    const auto& gradients = run.reference.gradients[stage];
    const std::vector<float>& found = run.stages[stage].gradients;
    const Values expected = sum_of(gradients) / static_cast<double>(gradients.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      if (!(std::abs(found[i] - expected.data()[i]) <= kTolerance))
        refuse({"stage {}, gradient {}, byte {}: {:.5g}, not {:.5g}; {}",
                "阶段 {} 的梯度 {}（第 {} 字节）：{:.5g}，应为 {:.5g}；{}"},
               stage, i, i * sizeof(float), found[i], expected.data()[i], cause_of(found, gradients));
  }
}

void judge(
    const Submission& submission, const Job& job, const std::function<void(const Run&)>& more = [](const Run&) {}) try {
  const PipelineReference reference = run_pipeline(job.stages, job.micro_batches);
  judge_run(
      submission, [&](auto record) { return run_job(submission, job, reference, record); },
      [&](const Run& run) {
        require_right(run);
        more(run);
      });
} catch (const Mistake& mistake) {
  refuse({"P = {}, m = {}: {}", "P = {}，m = {}：{}"}, job.stages, job.micro_batches, mistake.text);
}

void check_one_stage(const Submission& submission) {
  for (const std::size_t micro_batches : {1, 3}) judge(submission, {1, micro_batches});
}

void check_stages(const Submission& submission) {
  for (const std::size_t stages : {2, 3, 4})
    for (const std::size_t micro_batches : {1, 2, 5, 8}) judge(submission, {stages, micro_batches});
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) judge(submission, {4, 5, seed});
}

/// A step takes (m + P - 1)(f + b), and the time of messages.
void check_bubble(const Submission& submission) {
  for (const std::size_t micro_batches : {8, 4})
    judge(submission, {4, micro_batches}, [&](const Run& run) {
      const double least = static_cast<double>(micro_batches + 3) * seconds(Nanoseconds(kForwardTime + kBackwardTime));
      Nanoseconds took{0};
      for (const StageEnd& end : run.stages) took = std::max(took, end.took);
      if (seconds(took) > kSlack * least)
        refuse({"a step takes {:.2f} ms; with (m + P - 1)(f + b) it takes {:.2f} ms. Stage 0 waits between its "
                "passes: {}",
                "一步用了 {:.2f} ms；按 (m + P - 1)(f + b) 应为 {:.2f} ms。阶段 0 在各遍之间等待：{}"},
               seconds(took) * 1e3, least * 1e3, run.stages[0].passes);
    });
}

/// Stage s keeps at most P - s micro-batches.
void check_kept(const Submission& submission) {
  for (const std::size_t stages : {4, 2})
    judge(submission, {stages, 8}, [&](const Run& run) {
      for (std::size_t stage = 0; stage < stages; ++stage)
        if (const StageEnd& end = run.stages[stage]; end.most_kept > stages - stage)
          refuse({"stage {} keeps the inputs of {} micro-batches at once, after {}; P - s = {} are enough",
                  "阶段 {} 同时保存 {} 个微批的输入（在 {} 之后）；P - s = {} 个就够了"},
                 stage, end.most_kept, end.passes_at_most.empty() ? "-" : end.passes_at_most, stages - stage);
    });
}

}  // namespace

Exercise pipeline_exercise() {
  return {14,
          "pipeline",
          {"a pipeline with micro-batches: schedule and gradients", "带微批的流水线：次序与梯度"},
          "start.cpp",
          {{{"one stage, one and three micro-batches", "一个阶段，一个和三个微批"}, 15, check_one_stage},
           {{"2, 3 and 4 stages, 1 to 8 micro-batches", "2、3、4 个阶段，1 到 8 个微批"}, 35, check_stages, 0},
           {{"100 seeds of the simulated network", "模拟网络的 100 个种子"}, 10, check_seeds, 1},
           {{"no larger bubble than (P - 1)/(m + P - 1)", "气泡不大于 (P - 1)/(m + P - 1)"}, 20, check_bubble, 1},
           {{"stage s keeps at most P - s micro-batches", "阶段 s 至多保存 P - s 个微批"}, 20, check_kept, 1}}};
}

}  // namespace psring::cli
