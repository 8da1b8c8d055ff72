// Exercise 14: the schedule and the gradients of a pipeline with micro-batches.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <psring/cli/check/exercises.h>
#include <psring/cli/check/pipeline_stage.h>

namespace psring::cli {
namespace {

constexpr double kTolerance = 1e-5;
constexpr unsigned kSeeds = 100;
/// Beyond passes alone: the time of messages.
constexpr double kSlack = 1.02;

struct Job {
  std::size_t stages = 1;
  std::size_t micro_batches = 1;
  std::uint64_t seed = 0;
  bool record = false;
};

/// The actions of all stages in a step.
struct Done {
  std::string mistake;
  std::vector<std::string> passes;
  std::vector<std::vector<std::size_t>> unfinished;
  std::vector<std::size_t> most_kept;
  std::vector<std::string> passes_at_most;
  std::vector<std::vector<float>> gradients;
  std::vector<Nanoseconds> took;  ///< from the step's begin to its end
  RanksEnd end;
};

Done run_job(const Submission& submission, const Job& job, const PipelineReference& reference) {
  auto* const step = submission.solution->function<void(exercise::Stage&)>("pipeline_step");
  RanksOptions options{.ranks = job.stages,
                       .seed = job.seed,
                       .link = {1e9, std::chrono::microseconds(1)},
                       .record = job.record,
                       .label = submission.file.filename().string()};
  for (std::size_t stage = 0; stage < job.stages; ++stage)
    options.units.push_back({.name = fmt::format("stage {}", stage), .tensors = {}, .elements = kStageParameters});
  PipelineRun run{.micro_batches = job.micro_batches, .language = submission.language, .reference = reference};
  const std::size_t n = job.stages;
  Done done{{},
            std::vector<std::string>(n),
            std::vector<std::vector<std::size_t>>(n),
            std::vector<std::size_t>(n),
            std::vector<std::string>(n),
            std::vector<std::vector<float>>(n),
            std::vector<Nanoseconds>(n),
            {}};
  done.end = run_ranks(options, submission.language, [&](RankSide& side) {
    SimulatedStage stage(run, side);
    const Moment began = side.clock.now();
    side.events.begin_step(0);
    {
      const Events::Span span(side.events, {.name = "step"});
      step(stage);
    }
    done.passes[side.rank] = stage.passes();
    done.unfinished[side.rank] = stage.unfinished();
    done.most_kept[side.rank] = stage.most_kept();
    done.passes_at_most[side.rank] = stage.passes_at_most();
    done.gradients[side.rank] = stage.all_gradients();
    done.took[side.rank] = side.clock.now() - began;
  });
  done.mistake = std::move(run.mistake);
  return done;
}

/// The sum over the micro-batches of a stage's gradients, times `factor`, plus `more` times those of one micro-batch.
StageValues sum_of(const std::vector<StageValues>& gradients, double factor, std::size_t one = 0, double more = 0) {
  StageValues sum(kStageParameters);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    for (const StageValues& each : gradients) sum[i] += factor * each[i];
    sum[i] += more * gradients[one][i];
  }
  return sum;
}

bool all_near(const std::vector<float>& found, const StageValues& expected) {
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= kTolerance)) return false;
  return true;
}

/// The likely mistake behind wrong gradients of a stage.
std::string cause_of(Language language, const std::vector<float>& found, const std::vector<StageValues>& gradients) {
  const auto m = static_cast<double>(gradients.size());
  for (const float value : found)
    if (std::isnan(value))
      return say(language, Text{"it is no number: micro_gradients has values only after backward",
                                "它不是数：micro_gradients 在反向之后才有值"});
  if (std::all_of(found.begin(), found.end(), [](float value) { return value == 0; }))
    return say(language, Text{"gradients() was never written: add micro_gradients() after each backward",
                              "从未写过 gradients()：每次反向之后加上 micro_gradients()"});
  if (all_near(found, sum_of(gradients, 1)))
    return say(language, Text{"the sum over the {} micro-batches was not divided by {}", "{} 个微批之和没有除以 {}"},
               gradients.size(), gradients.size());
  if (all_near(found, sum_of(gradients, 1 / m / m)))
    return say(language, Text{"it was divided by {} twice", "除以了两次 {}"}, gradients.size());
  for (std::size_t one = 0; one < gradients.size(); ++one) {
    for (const double share : {1.0, 1 / m})
      if (all_near(found, sum_of(gradients, 0, one, share)))
        return say(language,
                   Text{"it is that of micro-batch {} alone: the micro-batches add up, each with 1/{}",
                        "它只是微批 {} 的梯度：各个微批要相加，每个乘以 1/{}"},
                   one, gradients.size());
    for (const double share : {1.0, 1 / m}) {
      if (all_near(found, sum_of(gradients, share, one, -share)))
        return say(language, Text{"micro-batch {} is missing", "缺少微批 {}"}, one);
      if (all_near(found, sum_of(gradients, share, one, share)))
        return say(language, Text{"micro-batch {} was added twice", "微批 {} 加了两次"}, one);
    }
  }
  return say(language, Text{"it is not the mean over the {} micro-batches", "它不是 {} 个微批的平均值"},
             gradients.size());
}

std::string wrong_gradients(Language language, const Done& done, const PipelineReference& reference) {
  for (std::size_t stage = 0; stage < done.gradients.size(); ++stage) {
    const auto& gradients = reference.gradients[stage];
    const StageValues expected = sum_of(gradients, 1 / static_cast<double>(gradients.size()));
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (!(std::abs(done.gradients[stage][i] - expected[i]) <= kTolerance))
        return say(language,
                   Text{"stage {}, gradient {}, byte {}: {:.5g}, not {:.5g}; {}",
                        "阶段 {} 的梯度 {}（第 {} 字节）：{:.5g}，应为 {:.5g}；{}"},
                   stage, i, i * sizeof(float), done.gradients[stage][i], expected[i],
                   cause_of(language, done.gradients[stage], gradients));
  }
  return "";
}

/// "": the step is right.
std::string explain(Language language, const Job& job, const Done& done, const PipelineReference& reference) {
  if (!done.mistake.empty()) return done.mistake;
  if (!done.end.deadlock.empty())
    return say(language,
               Text{"deadlock (rank s is stage s): {}. Does the other stage send this message before it waits itself?",
                    "死锁（rank s 就是阶段 s）：{}。对方是否在自己等待之前就发送了这条消息？"},
               done.end.deadlock);
  if (!done.end.thrown.empty()) return done.end.thrown;
  for (std::size_t stage = 0; stage < job.stages; ++stage)
    if (!done.unfinished[stage].empty())
      return say(language,
                 Text{"stage {} has not run backward of micro-batch {}; its passes were: {}",
                      "阶段 {} 没有对微批 {} 做反向；它的各遍是：{}"},
                 stage, done.unfinished[stage][0], done.passes[stage].empty() ? "-" : done.passes[stage]);
  return wrong_gradients(language, done, reference);
}

void judge(const Submission& submission, Job job, const std::function<std::string(const Done&)>& more = nullptr) {
  const PipelineReference reference = run_pipeline(job.stages, job.micro_batches);
  const Done done = run_job(submission, job, reference);
  std::string mistake = explain(submission.language, job, done, reference);
  if (mistake.empty() && more) mistake = more(done);
  if (mistake.empty()) return;
  job.record = true;
  submission.scene = run_job(submission, job, reference).end.scene;
  throw Mistake(say(submission.language, Text{"P = {}, m = {}: {}", "P = {}，m = {}：{}"}, job.stages,
                    job.micro_batches, mistake));
}

void check_one_stage(const Submission& submission) {
  for (const std::size_t micro_batches : {1, 3}) judge(submission, {.micro_batches = micro_batches});
}

void check_stages(const Submission& submission) {
  for (const std::size_t stages : {2, 3, 4})
    for (const std::size_t micro_batches : {1, 2, 5, 8})
      judge(submission, {.stages = stages, .micro_batches = micro_batches});
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) judge(submission, {.stages = 4, .micro_batches = 5, .seed = seed});
}

/// A step takes (m + P - 1)(f + b), and the time of messages.
void check_bubble(const Submission& submission) {
  for (const std::size_t micro_batches : {8, 4})
    judge(submission, {.stages = 4, .micro_batches = micro_batches}, [&](const Done& done) -> std::string {
      const double least = static_cast<double>(micro_batches + 3) * seconds(Nanoseconds(kForwardTime + kBackwardTime));
      const double took = seconds(*std::max_element(done.took.begin(), done.took.end()));
      if (took <= kSlack * least) return "";
      return say(submission.language,
                 Text{"a step takes {:.2f} ms; with (m + P - 1)(f + b) it takes {:.2f} ms. Stage 0 waits between its "
                      "passes: {}",
                      "一步用了 {:.2f} ms；按 (m + P - 1)(f + b) 应为 {:.2f} ms。阶段 0 在各遍之间等待：{}"},
                 took * 1e3, least * 1e3, done.passes[0]);
    });
}

/// Stage s keeps at most P - s micro-batches.
void check_kept(const Submission& submission) {
  for (const std::size_t stages : {4, 2})
    judge(submission, {.stages = stages, .micro_batches = 8}, [&](const Done& done) -> std::string {
      for (std::size_t stage = 0; stage < stages; ++stage)
        if (done.most_kept[stage] > stages - stage)
          return say(submission.language,
                     Text{"stage {} keeps the inputs of {} micro-batches at once, after {}; P - s = {} are enough",
                          "阶段 {} 同时保存 {} 个微批的输入（在 {} 之后）；P - s = {} 个就够了"},
                     stage, done.most_kept[stage],
                     done.passes_at_most[stage].empty() ? "-" : done.passes_at_most[stage], stages - stage);
      return "";
    });
}

}  // namespace

Exercise pipeline_exercise() {
  return {14,
          "pipeline",
          {"a pipeline with micro-batches: schedule and gradients", "带微批的流水线：次序与梯度"},
          "start.cpp",
          {{{"one stage, one and three micro-batches", "一个阶段，一个和三个微批"}, 15, check_one_stage},
           {{"2, 3 and 4 stages, 1 to 8 micro-batches", "2、3、4 个阶段，1 到 8 个微批"}, 35, check_stages, {0}},
           {{"100 seeds of the simulated network", "模拟网络的 100 个种子"}, 10, check_seeds, {1}},
           {{"no larger bubble than (P - 1)/(m + P - 1)", "气泡不大于 (P - 1)/(m + P - 1)"}, 20, check_bubble, {1}},
           {{"stage s keeps at most P - s micro-batches", "阶段 s 至多保存 P - s 个微批"}, 20, check_kept, {1}}}};
}

}  // namespace psring::cli
