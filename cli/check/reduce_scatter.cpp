// Exercise 01: reduce-scatter and all-gather from send and recv.
#include <algorithm>
#include <cmath>

#include <psring/cli/check/counted_link.h>
#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/cli/check/ranks.h>
#include <psring/cli/check/sums.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

using Collective = void(exercise::Link&, std::span<float>);
using Vectors = std::vector<std::vector<float>>;

constexpr std::size_t kGuard = 8;        ///< elements behind the vector that nobody may write
constexpr float kUntouched = -12345.5F;  ///< the value of these elements
constexpr unsigned kSeeds = 100;

/// A rank's links as the student's code sees them.
class StudentLink final : public exercise::Link {
 public:
  StudentLink(RankSide& side, MessageSizes& sizes) : side_(side), link_(side, sizes, "rank") {}

  std::size_t rank() const override { return side_.rank; }
  std::size_t size() const override { return side_.group.size(); }
  void send(std::size_t to, std::span<const float> values) override { link_.send(to, values); }
  void recv(std::size_t from, std::span<float> values) override { link_.recv(from, values); }

  std::size_t sent_bytes() const { return link_.sent_bytes(); }

 private:
  RankSide& side_;
  CountedLink link_;
};

/// The vectors and the bytes after a call at all ranks.
struct Called {
  Vectors vectors;
  std::vector<std::size_t> sent_bytes;
  RanksEnd end;
};

struct Call {
  const char* name;  ///< the student's function
  std::size_t ranks;
  std::uint64_t seed = 0;
  bool record = false;
};

Called call(const Submission& submission, const Call& what, Vectors vectors) {
  auto* const function = submission.solution->function<Collective>(what.name);
  RanksOptions options{.ranks = what.ranks,
                       .seed = what.seed,
                       .record = what.record,
                       .label = fmt::format("{}: {}", submission.file.filename().string(), what.name),
                       .vectors_only = true};
  options.units.push_back({.name = "vector", .tensors = {}, .elements = vectors[0].size()});
  Called called{std::move(vectors), std::vector<std::size_t>(what.ranks), {}};
  for (auto& vector : called.vectors) vector.resize(vector.size() + kGuard, kUntouched);
  MessageSizes sizes;
  called.end = run_ranks(options, submission.language, [&](RankSide& side) {
    StudentLink link(side, sizes);
    const Events::Topic topic(side.events, {0, 1});
    side.events.instant(GradientReady{{0, 1}, false});
    auto& vector = called.vectors[side.rank];
    function(link, std::span(vector).first(vector.size() - kGuard));
    called.sent_bytes[side.rank] = link.sent_bytes();
  });
  return called;
}

Range part(std::size_t rank, std::size_t ranks, std::size_t elements) {
  return {rank * elements / ranks, (rank + 1) * elements / ranks};
}

/// Refuses a call that deadlocked, threw, wrote behind a vector, or whose `mistake` is not empty; the scene shows it.
class Judge {
 public:
  Judge(const Submission& submission, const Call& what, const Vectors& before)
      : submission_(submission), what_(what), before_(before) {}

  void judge(const std::function<std::string(const Called&)>& mistake) const {
    const Called called = call(submission_, what_, before_);
    std::string text = failure(called);
    if (text.empty()) text = mistake(called);
    if (text.empty()) return;
    Call again = what_;
    again.record = true;
    submission_.scene = call(submission_, again, before_).end.scene;
    throw Mistake(fmt::format("{}: {}", what_.name, text));
  }

 private:
  std::string failure(const Called& called) const {
    const Language language = submission_.language;
    if (!called.end.deadlock.empty())
      return say(language,
                 Text{"deadlock of {} ranks: {}. Each waits for a message that is never sent; does every rank send "
                      "before it receives, and as often?",
                      "{} 个 rank 死锁：{}。它们等的消息永远不会发出；每个 rank 是否先发送再接收，次数也相同？"},
                 what_.ranks, called.end.deadlock);
    if (!called.end.thrown.empty())
      return say(language, Text{"n = {}: {}", "n = {}：{}"}, what_.ranks, called.end.thrown);
    for (std::size_t rank = 0; rank < what_.ranks; ++rank) {
      const auto& vector = called.vectors[rank];
      for (std::size_t i = vector.size() - kGuard; i < vector.size(); ++i)
        if (vector[i] != kUntouched)
          return say(language,
                     Text{"rank {} of {} wrote element {}, but its vector has {} elements",
                          "{1} 个 rank 中的 rank {0} 写了元素 {2}，但它的向量只有 {3} 个元素"},
                     rank, what_.ranks, i, vector.size() - kGuard);
    }
    return "";
  }

  const Submission& submission_;
  const Call& what_;
  const Vectors& before_;
};

/// Vectors of small whole numbers, whose sums are exact.
Vectors random_vectors(std::size_t ranks, std::size_t elements, std::uint64_t seed) {
  Vectors vectors(ranks, std::vector<float>(elements));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const CounterRng random({.seed = seed, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(rank)});
    for (std::size_t i = 0; i < elements; ++i) vectors[rank][i] = static_cast<float>(random.bits(i) % 1000);
  }
  return vectors;
}

std::vector<float> sum_of(const Vectors& vectors) {
  std::vector<float> sum(vectors[0].size(), 0.0F);
  for (const auto& vector : vectors)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += vector[i];
  return sum;
}

/// The bytes that a rank has to send if every other rank's part passes its link once.
std::string wrong_bytes(const Submission& submission, const Called& called, std::size_t ranks, std::size_t elements) {
  const std::size_t expected = elements / ranks * (ranks - 1) * sizeof(float);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (called.sent_bytes[rank] != expected)
      return say(
          submission.language,
          Text{"rank {} of {} sent {} bytes; (n - 1)/n · M are {} bytes at every rank, for M = {} bytes",
               "{1} 个 rank 中的 rank {0} 发送了 {2} 字节；M = {4} 字节时，每个 rank 应为 (n - 1)/n · M = {3} 字节"},
          rank, ranks, called.sent_bytes[rank], expected, elements * sizeof(float));
  return "";
}

/// Returns the first rank whose part of the vector is the sum of all ranks; `ranks`: none.
std::size_t complete_part(const std::vector<float>& vector, const std::vector<float>& sum, std::size_t ranks) {
  std::size_t rank = 0;
  for (; rank < ranks; ++rank) {
    const Range own = part(rank, ranks, sum.size());
    if (std::equal(sum.begin() + own.begin, sum.begin() + own.end, vector.begin() + own.begin)) break;
  }
  return rank;
}

/// Checks the sums of reduce_scatter: if one is wrong, runs again with vectors that tell whose values are missing.
void check_sums(const Submission& submission, std::size_t ranks, const Vectors& before, std::uint64_t seed,
                bool bytes = false) {
  const Call what{"reduce_scatter", ranks, seed};
  const std::size_t elements = before[0].size();
  const std::vector<float> sum = sum_of(before);
  Judge(submission, what, before).judge([&](const Called& called) -> std::string {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Range own = part(rank, ranks, elements);
      for (std::size_t i = own.begin; i < own.end; ++i)
        if (called.vectors[rank][i] != sum[i]) {
          const Called counted = call(submission, what, counting_vectors(ranks, elements));
          return explain_sum(submission.language, {.rank = rank,
                                                   .ranks = ranks,
                                                   .element = i,
                                                   .part = own,
                                                   .found = called.vectors[rank][i],
                                                   .expected = sum,
                                                   .counted = counted.vectors[rank][i],
                                                   .complete_part = complete_part(called.vectors[rank], sum, ranks)});
        }
    }
    return bytes ? wrong_bytes(submission, called, ranks, elements) : "";
  });
}

void check_four(const Submission& submission) {
  check_sums(submission, 4, {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}}, 0);
}

constexpr std::size_t kRanks[] = {2, 3, 5, 8, 1};

void check_many(const Submission& submission) {
  for (const std::size_t ranks : kRanks)
    for (const std::size_t each : {std::size_t{1}, std::size_t{37}})
      check_sums(submission, ranks, random_vectors(ranks, ranks * each, ranks), 0);
}

void check_bytes(const Submission& submission) {
  for (const std::size_t ranks : kRanks) check_sums(submission, ranks, random_vectors(ranks, ranks * 64, 7), 0, true);
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) check_sums(submission, 4, random_vectors(4, 20, seed), seed);
}

void check_gather(const Submission& submission) {
  for (const std::size_t ranks : kRanks) {
    const std::size_t elements = 16 * ranks;
    const std::vector<float> whole = random_vectors(1, elements, ranks)[0];
    Vectors before(ranks, std::vector<float>(elements, std::nanf("")));
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (std::size_t i = part(rank, ranks, elements).begin; i < part(rank, ranks, elements).end; ++i)
        before[rank][i] = whole[i];
    const Call what{"all_gather", ranks};
    Judge(submission, what, before).judge([&](const Called& called) -> std::string {
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < elements; ++i)
          if (called.vectors[rank][i] != whole[i])
            return explain_gather(submission.language, rank, ranks, i, called.vectors[rank], whole);
      return wrong_bytes(submission, called, ranks, elements);
    });
  }
}

}  // namespace

Exercise reduce_scatter_exercise() {
  return {1,
          "reduce-scatter",
          {"reduce-scatter and all-gather from send and recv", "用 send 和 recv 写出 reduce-scatter 与 all-gather"},
          "start.cpp",
          {{{"reduce_scatter: four ranks add up to 6, 10, 14, 18", "reduce_scatter：四个 rank 相加得 6、10、14、18"},
            20,
            check_four},
           {{"reduce_scatter: 1, 2, 3, 5 and 8 ranks", "reduce_scatter：1、2、3、5、8 个 rank"}, 20, check_many, {0}},
           {{"reduce_scatter: (n - 1)/n · M bytes at each rank", "reduce_scatter：每个 rank 发送 (n - 1)/n · M 字节"},
            20,
            check_bytes,
            {1}},
           {{"reduce_scatter: 100 seeds of the simulated network", "reduce_scatter：模拟网络的 100 个种子"},
            10,
            check_seeds,
            {1}},
           {{"all_gather: values and bytes", "all_gather：数值与字节"}, 30, check_gather}}};
}

}  // namespace psring::cli
