// Exercise 13: the forward and the backward of two layers that are cut among tensor-parallel ranks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/cli/check/pair_reference.h>
#include <psring/cli/check/ranks.h>

namespace psring::cli {
namespace {

using Values = std::vector<float>;
using Pass = void(exercise::TensorRank&, exercise::TensorPair&);

constexpr float kNotWritten = std::numeric_limits<float>::quiet_NaN();
constexpr double kTolerance = 1e-4;
constexpr unsigned kSeeds = 100;

class SimulatedRank final : public exercise::TensorRank {
 public:
  explicit SimulatedRank(RankSide& side) : side_(side) {}

  std::size_t rank() const override { return side_.rank; }
  std::size_t size() const override { return side_.group.size(); }
  void all_reduce(std::span<float> values) override {
    side_.waits_for = fmt::format("all_reduce of {} values", values.size());
    const Events::Span span(side_.events, {.name = "wait"});
    const Events::Topic topic(side_.events, {0, 1});
    side_.group.all_reduce(ring::Vector{values}, {}).wait();
    side_.waits_for.clear();
    summed_.push_back(values.size());
  }

  const std::vector<std::size_t>& summed() const { return summed_; }

 private:
  RankSide& side_;
  std::vector<std::size_t> summed_;  ///< values of each all-reduce
};

Values floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

/// The matrices of one rank, with their memory.
struct Part {
  Part(const Pair& pair, Range columns)
      : x(floats(pair.x)),
        a(floats(columns_of(pair.a, pair.hidden, columns))),
        b(floats(columns_of(pair.b, pair.hidden * pair.outputs,
                            {columns.begin * pair.outputs, columns.end * pair.outputs}))),
        c(floats(pair.c)),
        dy(floats(pair.dy)),
        hidden(pair.batch * columns.size(), kNotWritten),
        y(pair.batch * pair.outputs, kNotWritten),
        dx(x.size(), kNotWritten),
        da(a.size(), kNotWritten),
        db(b.size(), kNotWritten),
        dc(c.size(), kNotWritten),
        of_student{.x = {pair.batch, pair.inputs, x},
                   .a = {pair.inputs, columns.size(), a},
                   .b = {columns.size(), pair.outputs, b},
                   .c = {1, pair.outputs, c},
                   .hidden = {pair.batch, columns.size(), hidden},
                   .y = {pair.batch, pair.outputs, y},
                   .dy = {pair.batch, pair.outputs, dy},
                   .dx = {pair.batch, pair.inputs, dx},
                   .da = {pair.inputs, columns.size(), da},
                   .db = {columns.size(), pair.outputs, db},
                   .dc = {1, pair.outputs, dc}} {}
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Values x, a, b, c, dy;
  Values hidden, y, dx, da, db, dc;
  exercise::TensorPair of_student;
};

struct Run {
  std::size_t ranks = 1;
  std::uint64_t seed = 0;
  bool backward = true;
  bool record = false;
};

/// The results of all ranks.
struct Computed {
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<std::vector<std::size_t>> forward, backward;  ///< by rank: the values of each all-reduce
  RanksEnd end;
};

Range columns_of_rank(const Pair& pair, const Run& run, std::size_t rank) {
  return {rank * pair.hidden / run.ranks, (rank + 1) * pair.hidden / run.ranks};
}

Computed compute(const Submission& submission, const Pair& pair, const Run& run) {
  auto* const forward = submission.solution->function<Pass>("tensor_forward");
  auto* const backward = submission.solution->function<Pass>("tensor_backward");
  Computed computed;
  for (std::size_t rank = 0; rank < run.ranks; ++rank)
    computed.parts.push_back(std::make_unique<Part>(pair, columns_of_rank(pair, run, rank)));
  computed.forward.resize(run.ranks);
  computed.backward.resize(run.ranks);
  RanksOptions options{.ranks = run.ranks,
                       .seed = run.seed,
                       .record = run.record,
                       .label = submission.file.filename().string(),
                       .vectors_only = true};
  options.units.push_back({.name = "pair of layers", .tensors = {}, .elements = pair.a.size() + pair.b.size()});
  computed.end = run_ranks(options, submission.language, [&](RankSide& side) {
    SimulatedRank rank(side);
    exercise::TensorPair& part = computed.parts[side.rank]->of_student;
    {
      const Events::Span span(side.events, {.name = "forward", .unit = 0});
      forward(rank, part);
    }
    computed.forward[side.rank] = rank.summed();
    if (!run.backward) return;
    const Events::Span span(side.events, {.name = "backward", .unit = 0});
    backward(rank, part);
    computed.backward[side.rank].assign(
        rank.summed().begin() + static_cast<std::ptrdiff_t>(computed.forward[side.rank].size()), rank.summed().end());
  });
  return computed;
}

/// One result of a rank, beside the right one.
struct Result {
  const char* name;
  const char* formula;  ///< for one rank
  const exercise::Matrix& found;
  std::vector<double> expected;
  std::vector<double> without_relu;
  std::vector<double> own;       ///< of results that are sums over the ranks: this rank's summand
  std::vector<double> together;  ///< of a result that is a part: the sum over the ranks; empty if sizes differ
};

bool near(double found, double expected) { return std::abs(found - expected) <= kTolerance; }

/// Whether all values are those expected, up to the function `expected`.
template <class Expected>
bool all_near(const exercise::Matrix& found, const Expected& expected) {
  for (std::size_t i = 0; i < found.values.size(); ++i)
    if (!near(found.values[i], expected(i))) return false;
  return true;
}

/// The likely mistake behind a wrong result.
std::optional<Text> cause_of(const Result& result, const Pair& pair, double ranks) {
  const auto& [name, formula, found, expected, without_relu, own, together] = result;
  const bool is_y = name == std::string_view("y");
  for (const float value : found.values)
    if (std::isnan(value))
      return Text{"it was not written, or was calculated from values that were not written",
                  "它没有被写过，或由没有写过的值算出"};
  if (ranks > 1 && !own.empty() && all_near(found, [&](std::size_t i) { return own[i]; }))
    return Text{"it is this rank's own summand; every rank has another one, and needs the sum: all_reduce",
                "它只是该 rank 自己的加数；各 rank 的加数不同，需要它们的和：all_reduce"};
  if (is_y) {
    const auto bias = [&](std::size_t i) { return pair.c[i % pair.outputs]; };
    if (ranks > 1 && all_near(found, [&](std::size_t i) { return own[i] + bias(i); }))
      return Text{"it is this rank's own summand, and the bias; add up the summands of all ranks: all_reduce",
                  "它是该 rank 自己的加数加上偏置；要把所有 rank 的加数相加：all_reduce"};
    if (all_near(found, [&](std::size_t i) { return expected[i] + (ranks - 1) * bias(i); }))
      return Text{
          "the bias was added once at every rank, so the sum has it as often as there are ranks: add it after the "
          "sum",
          "每个 rank 都加了一次偏置，于是有多少个 rank，和里就有多少个偏置：应在求和之后再加"};
    if (all_near(found, [&](std::size_t i) { return expected[i] - bias(i); }))
      return Text{"the bias is missing", "缺少偏置"};
  }
  if (all_near(found, [&](std::size_t i) { return without_relu[i]; }))
    return Text{"relu is missing: it passes a value, and its gradient, only where x A is above 0",
                "缺少 relu：只有 x A 大于 0 的地方，relu 才让值及其梯度通过"};
  if (ranks > 1 && all_near(found, [&](std::size_t i) { return ranks * expected[i]; }))
    return Text{
        "it is as many times too large as there are ranks: it is the same at every rank already, and was added up",
        "有多少个 rank，它就大了多少倍：它在每个 rank 上本来就相同，却又相加了一次"};
  if (ranks > 1 && all_near(found, [&](std::size_t i) { return expected[i] / ranks; }))
    return Text{"it was divided by the number of ranks: the ranks have summands of one result, not samples to average",
                "它除以了 rank 的数目：各 rank 有的是同一个结果的加数，而不是要平均的样本"};
  if (!together.empty() && all_near(found, [&](std::size_t i) { return together[i]; }))
    return Text{"it is the sum over all ranks, but every rank has other columns of A and rows of B: keep your own part",
                "它是所有 rank 之和，但各 rank 有 A 的不同的列和 B 的不同的行：只留自己的部分"};
  return std::nullopt;
}

/// The sums over the ranks of results that are parts; empty if the parts differ in size.
PairResult sum_of_parts(const Pair& pair, const Run& run) {
  PairResult sum;
  if (run.ranks == 1 || pair.hidden % run.ranks != 0) return sum;
  for (std::size_t rank = 0; rank < run.ranks; ++rank) {
    const PairResult part = run_part(pair, columns_of_rank(pair, run, rank));
    for (const auto member : {&PairResult::hidden, &PairResult::da, &PairResult::db}) {
      (sum.*member).resize((part.*member).size());
      for (std::size_t i = 0; i < (part.*member).size(); ++i) (sum.*member)[i] += (part.*member)[i];
    }
  }
  return sum;
}

/// The results of a rank in the order in which they are computed; without backward only those of forward.
std::vector<Result> results_of(const Pair& pair, const Run& run, const Computed& computed, std::size_t rank) {
  const Range columns = columns_of_rank(pair, run, rank);
  const PairResult own = run_part(pair, columns);
  const PairResult linear = run_part(pair, columns, false);
  const PairResult whole = run_whole(pair);
  const PairResult linear_whole = run_whole(pair, false);
  const PairResult together = sum_of_parts(pair, run);
  const exercise::TensorPair& found = computed.parts[rank]->of_student;
  std::vector<Result> results{{"hidden", "relu(x A)", found.hidden, own.hidden, linear.hidden, {}, together.hidden},
                              {"y", "hidden B + c", found.y, whole.y, linear_whole.y, own.y, {}}};
  if (!run.backward) return results;
  results.push_back({"dc", "the sum of the rows of dy", found.dc, whole.dc, whole.dc, {}, {}});
  results.push_back({"db", "hidden^T dy", found.db, own.db, linear.db, {}, together.db});
  results.push_back(
      {"da", "x^T (dy B^T, where hidden is above 0, else 0)", found.da, own.da, linear.da, {}, together.da});
  results.push_back(
      {"dx", "(dy B^T, where hidden is above 0, else 0) A^T", found.dx, whole.dx, linear_whole.dx, own.dx, {}});
  return results;
}

std::string wrong_result(const Submission& submission, const Pair& pair, const Run& run, const Computed& computed) {
  for (std::size_t rank = 0; rank < run.ranks; ++rank)
    for (const Result& result : results_of(pair, run, computed, rank))
      for (std::size_t i = 0; i < result.expected.size(); ++i) {
        if (near(result.found.values[i], result.expected[i])) continue;
        const Language language = submission.language;
        const std::optional<Text> cause = cause_of(result, pair, static_cast<double>(run.ranks));
        return say(language,
                   Text{"rank {} of {}, which has {} of {} columns of A: {}, row {}, column {}, byte {} is {:.5g}, not "
                        "{:.5g}; {}",
                        "{1} 个 rank 中的 rank {0}（它有 A 的 {3} 列中的 {2} 列）：{4} 第 {5} 行、第 {6} 列、第 {7} "
                        "字节是 {8:.5g}，应为 {9:.5g}；{10}"},
                   rank, run.ranks, columns_of_rank(pair, run, rank).size(), pair.hidden, result.name,
                   i / result.found.columns, i % result.found.columns, i * sizeof(float), result.found.values[i],
                   result.expected[i],
                   cause ? std::string(cause->in(language))
                         : say(language, Text{"in one process it is {}", "在一个进程中，它是 {}"}, result.formula));
      }
  return "";
}

std::string failure(const Submission& submission, const Run& run, const Computed& computed) {
  if (!computed.end.deadlock.empty())
    return say(submission.language,
               Text{"deadlock of {} ranks: {}. Does every rank make the same calls?",
                    "{} 个 rank 死锁：{}。每个 rank 的调用是否相同？"},
               run.ranks, computed.end.deadlock);
  if (!computed.end.thrown.empty())
    return say(submission.language, Text{"{} ranks: {}", "{} 个 rank：{}"}, run.ranks, computed.end.thrown);
  return "";
}

/// Refuses a run that failed, has a wrong result, or in which `more` (may be null) finds a mistake; the scene shows it.
void judge(const Submission& submission, const Pair& pair, Run run,
           const std::function<std::string(const Computed&)>& more = nullptr) {
  const Computed computed = compute(submission, pair, run);
  std::string mistake = failure(submission, run, computed);
  if (mistake.empty()) mistake = wrong_result(submission, pair, run, computed);
  if (mistake.empty() && more) mistake = more(computed);
  if (mistake.empty()) return;
  run.record = true;
  submission.scene = compute(submission, pair, run).end.scene;
  throw Mistake(mistake);
}

/// Sizes that tell rows from columns, and that some numbers of ranks divide and others do not.
Pair pair_of(std::uint64_t seed) { return random_pair(3, 5, 8, 4, seed); }

void check_one_rank(const Submission& submission) { judge(submission, pair_of(1), {}); }

void check_forward(const Submission& submission) {
  for (const std::size_t ranks : {2, 4, 3, 5}) judge(submission, pair_of(ranks), {.ranks = ranks, .backward = false});
}

void check_backward(const Submission& submission) {
  for (const std::size_t ranks : {2, 4, 3, 5}) judge(submission, pair_of(ranks), {.ranks = ranks});
}

/// One all-reduce of y in forward, and one of dx in backward.
void check_sums(const Submission& submission) {
  const Pair pair = pair_of(9);
  judge(submission, pair, {.ranks = 4}, [&](const Computed& computed) -> std::string {
    for (std::size_t rank = 0; rank < 4; ++rank)
      for (const auto& [summed, pass, what, size] :
           {std::tuple(&computed.forward[rank], "tensor_forward", "y", pair.batch * pair.outputs),
            std::tuple(&computed.backward[rank], "tensor_backward", "dx", pair.batch * pair.inputs)}) {
        std::size_t all = 0;
        for (const std::size_t values : *summed) all += values;
        if (summed->size() != 1 || all != size)
          return say(
              submission.language,
              Text{"rank {}: {} hands {} bytes to {} all-reduces; the {} bytes of {} in one all-reduce are enough",
                   "rank {0}：{1} 把 {2} 字节交给 {3} 次 all-reduce；把 {5} 的 {4} 字节交给一次 all-reduce 就够了"},
              rank, pass, all * sizeof(float), summed->size(), size * sizeof(float), what);
      }
    return "";
  });
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) judge(submission, pair_of(seed), {.ranks = 4, .seed = seed});
}

}  // namespace

Exercise tensor_backward_exercise() {
  return {13,
          "tensor-backward",
          {"tensor parallelism: a pair of cut layers, forward and backward", "张量并行：一对切开的层的前向与反向"},
          "start.cpp",
          {{{"one rank: y and all gradients", "一个 rank：y 与全部梯度"}, 25, check_one_rank},
           {{"forward of 2, 3, 4 and 5 ranks", "2、3、4、5 个 rank 的前向"}, 20, check_forward, {0}},
           {{"backward of 2, 3, 4 and 5 ranks", "2、3、4、5 个 rank 的反向"}, 30, check_backward, {1}},
           {{"one all-reduce in each pass", "每一遍一次 all-reduce"}, 15, check_sums, {2}},
           {{"100 seeds of the simulated network", "模拟网络的 100 个种子"}, 10, check_seeds, {2}}}};
}

}  // namespace psring::cli
