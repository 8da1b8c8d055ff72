// Exercise 13: the forward and the backward of two layers that are cut among tensor-parallel ranks.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>

#include <psring/cli/check/ranks.h>
#include <psring/cli/check/references.h>

namespace psring::cli {
namespace {

using Pass = void(exercise::TensorRank&, exercise::TensorPair&);

constexpr double kTolerance = 1e-4;
constexpr unsigned kSeeds = 100;
constexpr double kNotWritten = std::numeric_limits<double>::quiet_NaN();

class SimulatedRank final : public exercise::TensorRank {
 public:
  /// `summed`: gets the values of each all-reduce.
  SimulatedRank(RankSide& side, std::vector<std::size_t>& summed) : side_(side), summed_(summed) {}

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

 private:
  RankSide& side_;
  std::vector<std::size_t>& summed_;
};

/// The matrices of one rank, with their memory.
class Part {
 public:
  Part(const Pair& pair, Range columns) {
    const Values a = columns_of(pair.a, columns);
    const Values b = rows_of(pair.b, columns);
    const auto given = [&](const Values& values) { return view<const float>(values); };
    const auto result = [&](const Values& like) { return view<float>(kNotWritten * like); };
    of_student = {.x = given(pair.x),
                  .a = given(a),
                  .b = given(b),
                  .c = given(pair.c),
                  .hidden = result(pair.x * a),
                  .y = result(pair.dy),
                  .dy = given(pair.dy),
                  .dx = result(pair.x),
                  .da = result(a),
                  .db = result(b),
                  .dc = result(pair.c)};
  }

  exercise::TensorPair of_student;
  std::vector<std::size_t> forward, backward;  ///< the values of each all-reduce

 private:
  /// Returns a copy of the values as the student's code sees a matrix.
  template <class T>
  exercise::MatrixOf<T> view(const Values& values) {
    Floats& copy = memory_.emplace_back(values.cast<float>());
    const auto size = [](Eigen::Index index) { return static_cast<std::size_t>(index); };
    return {size(copy.rows()), size(copy.cols()), {copy.data(), size(copy.size())}};
  }

  std::deque<Floats> memory_;
};

/// The results of all ranks.
struct Computed {
  std::vector<std::unique_ptr<Part>> parts;
  RanksEnd end;
};

struct Job {
  Pair pair;
  std::size_t ranks = 1;
  std::uint64_t seed = 0;
  bool backward = true;

  std::size_t hidden() const { return static_cast<std::size_t>(pair.a.cols()); }
  Range columns(std::size_t rank) const { return {rank * hidden() / ranks, (rank + 1) * hidden() / ranks}; }
};

Computed compute(const Submission& submission, const Job& job, std::optional<Language> record) {
  auto* const forward = submission.solution->function<Pass>("tensor_forward");
  auto* const backward = submission.solution->function<Pass>("tensor_backward");
  Computed computed;
  for (std::size_t rank = 0; rank < job.ranks; ++rank)
    computed.parts.push_back(std::make_unique<Part>(job.pair, job.columns(rank)));
  const RanksOptions options{
      .ranks = job.ranks,
      .seed = job.seed,
      .record = record,
      .label = submission.file.filename().string(),
      .vectors_only = true,
      .units = {{"pair of layers", static_cast<std::size_t>(job.pair.a.size() + job.pair.b.size())}}};
  computed.end = run_ranks(options, [&](RankSide& side) {
    Part& part = *computed.parts[side.rank];
    const auto run = [&](Pass* pass, const char* name, std::vector<std::size_t>& summed) {
      SimulatedRank rank(side, summed);
      const Events::Span span(side.events, {.name = name, .unit = 0});
      pass(rank, part.of_student);
    };
    run(forward, "forward", part.forward);
    if (job.backward) run(backward, "backward", part.backward);
  });
  return computed;
}

/// One result of a rank, beside the right one.
struct Result {
  const char* name;
  const char* formula;  ///< for one rank
  exercise::Matrix found;
  Values expected;
  Values without_relu;
  Values own;       ///< of results that are sums over several ranks: this rank's summand; else empty
  Values together;  ///< of results that are parts: the sum over the ranks; empty if sizes differ
};

/// The results of a rank in the order in which they are computed; without backward only those of forward.
std::vector<Result> results_of(const Job& job, const exercise::TensorPair& found, std::size_t rank) {
  const PairResult own = run_part(job.pair, job.columns(rank));
  const PairResult linear = run_part(job.pair, job.columns(rank), false);
  const PairResult whole = run_whole(job.pair);
  const PairResult linear_whole = run_whole(job.pair, false);
  PairResult sum;
  if (job.ranks > 1 && job.hidden() % job.ranks == 0)
    for (std::size_t other = 0; other < job.ranks; ++other) {
      const PairResult part = run_part(job.pair, job.columns(other));
      for (const auto member : {&PairResult::hidden, &PairResult::da, &PairResult::db})
        sum.*member = other == 0 ? part.*member : Values(sum.*member + part.*member);
    }
  const auto summand = [&](const Values& values) { return job.ranks > 1 ? values : Values(); };
  std::vector<Result> results = {
      {"hidden", "relu(x A)", found.hidden, own.hidden, linear.hidden, {}, sum.hidden},
      {"y", "hidden B + c", found.y, whole.y, linear_whole.y, summand(own.y), {}},
      {"dc", "the sum of the rows of dy", found.dc, whole.dc, whole.dc, {}, {}},
      {"db", "hidden^T dy", found.db, own.db, linear.db, {}, sum.db},
      {"da", "x^T (dy B^T, where hidden is above 0, else 0)", found.da, own.da, linear.da, {}, sum.da},
      {"dx",
       "(dy B^T, where hidden is above 0, else 0) A^T",
       found.dx,
       whole.dx,
       linear_whole.dx,
       summand(own.dx),
       {}}};
  results.resize(job.backward ? results.size() : 2);
  return results;
}

/// The likely mistake behind a wrong result.
Message cause_of(const Result& result, const Job& job) {
  const auto is = [&](const Values& values) {
    return values.size() > 0 && all_near(result.found.values, values, kTolerance);
  };
  const auto n = static_cast<double>(job.ranks);
  if (std::any_of(result.found.values.begin(), result.found.values.end(), [](float each) { return std::isnan(each); }))
    return {{"it was not written, or was calculated from values that were not written",
             "它没有被写过，或由没有写过的值算出"}};
  if (is(result.own))
    return {{"it is this rank's own summand; every rank has another one, and needs the sum: all_reduce",
             "它只是该 rank 自己的加数；各 rank 的加数不同，需要它们的和：all_reduce"}};
  if (result.name == std::string_view("y")) {
    const Values bias = job.pair.c.replicate(job.pair.x.rows(), 1);
    if (job.ranks > 1 && is(result.own + bias))
      return {{"it is this rank's own summand, and the bias; add up the summands of all ranks: all_reduce",
               "它是该 rank 自己的加数加上偏置；要把所有 rank 的加数相加：all_reduce"}};
    if (is(result.expected + (n - 1) * bias))
      return {
          {"the bias was added once at every rank, so the sum has it as often as there are ranks: add it after the "
           "sum",
           "每个 rank 都加了一次偏置，于是有多少个 rank，和里就有多少个偏置：应在求和之后再加"}};
    if (is(result.expected - bias)) return {{"the bias is missing", "缺少偏置"}};
  }
  if (is(result.without_relu))
    return {{"relu is missing: it passes a value, and its gradient, only where x A is above 0",
             "缺少 relu：只有 x A 大于 0 的地方，relu 才让值及其梯度通过"}};
  if (is(n * result.expected))
    return {{"it is as many times too large as there are ranks: it is the same at every rank already, and was added up",
             "有多少个 rank，它就大了多少倍：它在每个 rank 上本来就相同，却又相加了一次"}};
  if (is(result.expected / n))
    return {{"it was divided by the number of ranks: the ranks have summands of one result, not samples to average",
             "它除以了 rank 的数目：各 rank 有的是同一个结果的加数，而不是要平均的样本"}};
  if (is(result.together))
    return {{"it is the sum over all ranks, but every rank has other columns of A and rows of B: keep your own part",
             "它是所有 rank 之和，但各 rank 有 A 的不同的列和 B 的不同的行：只留自己的部分"}};
  return {{"in one process it is {}", "在一个进程中，它是 {}"}, result.formula};
}

void require_right(const Job& job, const Computed& computed) {
  computed.end.require_good(job.ranks,
                            {"deadlock of {} ranks: {}. Does every rank make the same calls?",
                             "{} 个 rank 死锁：{}。每个 rank 的调用是否相同？"},
                            {"{} ranks: {}", "{} 个 rank：{}"});
  for (std::size_t rank = 0; rank < job.ranks; ++rank)
    for (const Result& result : results_of(job, computed.parts[rank]->of_student, rank))
      for (std::size_t i = 0; i < result.found.values.size(); ++i) {
        const double expected = result.expected.data()[i];
        if (std::abs(result.found.values[i] - expected) <= kTolerance) continue;
        refuse({"rank {} of {}, which has {} of {} columns of A: {}, row {}, column {}, byte {} is {:.5g}, not {:.5g}; "
                "{}",
                "{1} 个 rank 中的 rank {0}（它有 A 的 {3} 列中的 {2} 列）：{4} 第 {5} 行、第 {6} 列、第 {7} "
                "字节是 {8:.5g}，应为 {9:.5g}；{10}"},
               rank, job.ranks, job.columns(rank).size(), job.hidden(), result.name, i / result.found.columns,
               i % result.found.columns, i * sizeof(float), result.found.values[i], expected, cause_of(result, job));
      }
}

/// Refuses a run that failed, has a wrong result, or that `more` refuses.
void judge(
    const Submission& submission, const Job& job,
    const std::function<void(const Computed&)>& more = [](const Computed&) {}) {
  judge_run(
      submission, [&](auto record) { return compute(submission, job, record); },
      [&](const Computed& computed) {
        require_right(job, computed);
        more(computed);
      });
}

/// Sizes that tell rows from columns, and that some numbers of ranks divide and others do not.
Pair pair_of(std::uint64_t seed) { return random_pair(3, 5, 8, 4, seed); }

void check_one_rank(const Submission& submission) { judge(submission, {.pair = pair_of(1)}); }

void check_forward(const Submission& submission) {
  for (const std::size_t ranks : {2, 4, 3, 5}) judge(submission, {pair_of(ranks), ranks, 0, false});
}

void check_backward(const Submission& submission) {
  for (const std::size_t ranks : {2, 4, 3, 5}) judge(submission, {pair_of(ranks), ranks});
}

/// One all-reduce of y in forward, and one of dx in backward.
void check_sums(const Submission& submission) {
  judge(submission, {pair_of(9), 4}, [&](const Computed& computed) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const Part& part = *computed.parts[rank];
      const auto require_one = [&](const std::vector<std::size_t>& summed, const char* pass, const char* what,
                                   std::size_t size) {
        const std::size_t all = std::accumulate(summed.begin(), summed.end(), std::size_t{0});
        if (summed.size() != 1 || all != size)
          refuse({"rank {}: {} hands {} bytes to {} all-reduces; the {} bytes of {} in one all-reduce are enough",
                  "rank {0}：{1} 把 {2} 字节交给 {3} 次 all-reduce；把 {5} 的 {4} 字节交给一次 all-reduce 就够了"},
                 rank, pass, all * sizeof(float), summed.size(), size * sizeof(float), what);
      };
      require_one(part.forward, "tensor_forward", "y", part.of_student.y.values.size());
      require_one(part.backward, "tensor_backward", "dx", part.of_student.dx.values.size());
    }
  });
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) judge(submission, {pair_of(seed), 4, seed});
}

}  // namespace

Exercise tensor_backward_exercise() {
  return {13,
          "tensor-backward",
          {"tensor parallelism: a pair of cut layers, forward and backward", "张量并行：一对切开的层的前向与反向"},
          "start.cpp",
          {{{"one rank: y and all gradients", "一个 rank：y 与全部梯度"}, 25, check_one_rank},
           {{"forward of 2, 3, 4 and 5 ranks", "2、3、4、5 个 rank 的前向"}, 20, check_forward, 0},
           {{"backward of 2, 3, 4 and 5 ranks", "2、3、4、5 个 rank 的反向"}, 30, check_backward, 1},
           {{"one all-reduce in each pass", "每一遍一次 all-reduce"}, 15, check_sums, 2},
           {{"100 seeds of the simulated network", "模拟网络的 100 个种子"}, 10, check_seeds, 2}}};
}

}  // namespace psring::cli
