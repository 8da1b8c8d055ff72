// Exercise 01: reduce-scatter and all-gather from send and recv.
#include <algorithm>
#include <cmath>

#include <psring/cli/check/ranks.h>
#include <psring/common/base/range.h>
#include <psring/common/base/rng.h>

namespace psring::cli {
namespace {

using Collective = void(exercise::Link&, std::span<float>);
using Vectors = std::vector<std::vector<float>>;

constexpr std::size_t kGuard = 8;        ///< elements behind the vector that nobody may write
constexpr float kUntouched = -12345.5F;  ///< the value of these elements
constexpr unsigned kSeeds = 100;
constexpr std::size_t kRanks[] = {2, 3, 5, 8, 1};
constexpr std::size_t kBase = 4;  ///< a rank that is counted up to three times is told apart

/// The vectors and the bytes after a call at all ranks.
struct Called {
  Vectors vectors;
  std::vector<std::size_t> sent_bytes;
  RanksEnd end;
};

/// A call of a student's function, by `name`, at all ranks.
struct Call {
  const Submission& submission;
  const char* name;
  Vectors before;
  std::uint64_t seed = 0;

  std::size_t ranks() const { return before.size(); }
  std::size_t elements() const { return before[0].size(); }
  Range part(std::size_t rank) const { return {rank * elements() / ranks(), (rank + 1) * elements() / ranks()}; }

  Called run(std::optional<Language> record = {}) const;
  /// Refuses a call that deadlocked, threw, wrote behind a vector, or that `inspect` refuses.
  void judge(const std::function<void(const Called&)>& inspect) const;
  /// Refuses other bytes than a rank has to send if every other rank's part passes its link once.
  void check_bytes(const Called& called) const;
};

Called Call::run(std::optional<Language> record) const {
  auto* const function = submission.solution->function<Collective>(name);
  const RanksOptions options{.ranks = ranks(),
                             .seed = seed,
                             .record = record,
                             .label = fmt::format("{}: {}", submission.file.filename().string(), name),
                             .vectors_only = true,
                             .units = {{"vector", elements()}}};
  Called called{before, std::vector<std::size_t>(ranks()), {}};
  for (auto& vector : called.vectors) vector.resize(vector.size() + kGuard, kUntouched);
  MessageSizes sizes;
  called.end = run_ranks(options, [&](RankSide& side) {
    CountedLink link(side, sizes, "rank");
    const Events::Topic topic(side.events, {0, 1});
    side.events.instant(GradientReady{{0, 1}, false});
    function(link, std::span(called.vectors[side.rank]).first(elements()));
    called.sent_bytes[side.rank] = link.sent_bytes();
  });
  return called;
}

void Call::judge(const std::function<void(const Called&)>& inspect) const try {
  judge_run(
      submission, [&](auto record) { return run(record); },
      [&](const Called& called) {
        called.end.require_good(
            ranks(),
            {"deadlock of {} ranks: {}. Each waits for a message that is never sent; does every rank send before it "
             "receives, and as often?",
             "{} 个 rank 死锁：{}。它们等的消息永远不会发出；每个 rank 是否先发送再接收，次数也相同？"},
            {"n = {}: {}", "n = {}：{}"});
        for (std::size_t rank = 0; rank < ranks(); ++rank)
          for (std::size_t i = elements(); i < elements() + kGuard; ++i)
            if (called.vectors[rank][i] != kUntouched)
              refuse({"rank {} of {} wrote element {}, but its vector has {} elements",
                      "{1} 个 rank 中的 rank {0} 写了元素 {2}，但它的向量只有 {3} 个元素"},
                     rank, ranks(), i, elements());
        inspect(called);
      });
} catch (const Mistake& mistake) {
  refuse({"{}: {}", "{}: {}"}, name, mistake.text);
}

void Call::check_bytes(const Called& called) const {
  const std::size_t expected = elements() / ranks() * (ranks() - 1) * sizeof(float);
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    if (called.sent_bytes[rank] != expected)
      refuse({"rank {} of {} sent {} bytes; (n - 1)/n · M are {} bytes at every rank, for M = {} bytes",
              "{1} 个 rank 中的 rank {0} 发送了 {2} 字节；M = {4} 字节时，每个 rank 应为 (n - 1)/n · M = {3} 字节"},
             rank, ranks(), called.sent_bytes[rank], expected, elements() * sizeof(float));
}

/// Vectors of small whole numbers, whose sums are exact.
Vectors random_vectors(std::size_t ranks, std::size_t elements, std::uint64_t seed) {
  Vectors vectors(ranks, std::vector<float>(elements));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const CounterRng random({.seed = seed, .purpose = Purpose::test, .rank = static_cast<std::uint16_t>(rank)});
    for (std::size_t i = 0; i < elements; ++i) vectors[rank][i] = static_cast<float>(random.bits(i) % 1000);
  }
  return vectors;
}

/// Vectors for at most 8 ranks, whose sums tell how often each rank was added: every element of rank r is 4^r.
Vectors counting_vectors(std::size_t ranks, std::size_t elements) {
  Vectors vectors;
  float value = 1;
  for (std::size_t rank = 0; rank < ranks; ++rank, value *= kBase) vectors.emplace_back(elements, value);
  return vectors;
}

/// Says how often a rank's sum of counting_vectors has each rank's value. Empty if it is no such sum, or is right.
Message explain_counts(float counted, std::size_t rank, std::size_t ranks) {
  if (!(counted >= 0) || counted != std::floor(counted) || counted >= std::pow(float{kBase}, static_cast<float>(ranks)))
    return {};
  auto left = static_cast<std::size_t>(counted);
  if (left == std::size_t{1} << 2 * rank)
    return {{"it is the rank's own value alone: nothing was added", "它只是该 rank 自己的值：什么也没有加上"}};
  std::string by_count[kBase];  // the ranks whose values were added so often
  for (std::size_t other = 0; other < ranks; ++other, left /= kBase) {
    std::string& list = by_count[left % kBase];
    list += fmt::format("{}{}", list.empty() ? "" : ", ", other);
  }
  Message text;
  if (!by_count[0].empty()) text = {{"it lacks the value of rank {}", "缺少 rank {} 的值"}, by_count[0]};
  for (const std::size_t times : {2, 3}) {
    if (by_count[times].empty()) continue;
    const Message more({"it has the value of rank {} {} times", "rank {} 的值加了 {} 次"}, by_count[times], times);
    text = text.empty() ? more : Message({"{}; {}", "{}；{}"}, text, more);
  }
  return text;
}

/// The likely mistake behind element `i` of a rank, which is not its sum: whose value is missing or counted twice,
/// another element's sum, a multiple of the right one.
Message cause_of(const Call& call, const Called& called, std::size_t rank, std::size_t i,
                 const std::vector<float>& sum) {
  const std::vector<float>& vector = called.vectors[rank];
  for (std::size_t other = 0; other < call.ranks(); ++other) {
    const Range part = call.part(other);
    if (std::equal(sum.begin() + part.begin, sum.begin() + part.end, vector.begin() + part.begin))
      return {{"here the sum of the part of rank {} is complete instead: in the last round a rank has to receive its "
               "own part",
               "这里完成的却是 rank {} 的部分之和：最后一轮里，每个 rank 必须收到自己的部分"},
              other};
  }
  Call counting = call;
  counting.before = counting_vectors(call.ranks(), call.elements());
  if (Message text = explain_counts(counting.run().vectors[rank][i], rank, call.ranks()); !text.empty()) return text;
  if (const auto other = std::find(sum.begin(), sum.end(), vector[i]); other != sum.end())
    return {{"it is the sum of element {}: the ranges are shifted", "它是元素 {} 的和：区间错位了"},
            other - sum.begin()};
  if (sum[i] != 0 && std::isfinite(vector[i]) &&
      std::abs(vector[i] * static_cast<float>(call.ranks()) - sum[i]) < 0.01F * std::abs(sum[i]))
    return {{"it is the mean; a reduce-scatter adds, and does not divide by {}",
             "它是平均值；reduce-scatter 只相加，不除以 {}"},
            call.ranks()};
  if (std::isnan(vector[i]))
    return {{"it is not a number: an element was read before it was received", "它不是数：某个元素在收到之前就被读取"}};
  return {{"values of different elements were added: do sender and receiver mean the same range?",
           "不同元素的值被加在一起：发送方和接收方说的是同一个区间吗？"}};
}

/// Checks the sums of reduce_scatter: if one is wrong, runs again with vectors that tell whose values are missing.
void check_sums(const Submission& submission, Vectors before, std::uint64_t seed = 0, bool bytes = false) {
  const Call call{submission, "reduce_scatter", std::move(before), seed};
  std::vector<float> sum(call.elements(), 0.0F);
  for (const auto& vector : call.before)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += vector[i];
  call.judge([&](const Called& called) {
    for (std::size_t rank = 0; rank < call.ranks(); ++rank) {
      const Range part = call.part(rank);
      for (std::size_t i = part.begin; i < part.end; ++i)
        if (called.vectors[rank][i] != sum[i])
          refuse({"rank {} of {}, its part [{}, {}), byte {}: element {} is {}, not {}; {}",
                  "{1} 个 rank 中的 rank {0}，它的部分 [{2}, {3})，第 {4} 字节：元素 {5} 是 {6}，应为 {7}；{8}"},
                 rank, call.ranks(), part.begin, part.end, i * sizeof(float), i, called.vectors[rank][i], sum[i],
                 cause_of(call, called, rank, i, sum));
    }
    if (bytes) call.check_bytes(called);
  });
}

void check_four(const Submission& submission) {
  check_sums(submission, {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}});
}

void check_many(const Submission& submission) {
  for (const std::size_t ranks : kRanks)
    for (const std::size_t each : {1, 37}) check_sums(submission, random_vectors(ranks, ranks * each, ranks));
}

void check_bytes(const Submission& submission) {
  for (const std::size_t ranks : kRanks) check_sums(submission, random_vectors(ranks, ranks * 64, 7), 0, true);
}

void check_seeds(const Submission& submission) {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) check_sums(submission, random_vectors(4, 20, seed), seed);
}

void check_gather(const Submission& submission) {
  for (const std::size_t ranks : kRanks) {
    const std::size_t each = 16;
    const std::vector<float> whole = random_vectors(1, each * ranks, ranks)[0];
    Call call{submission, "all_gather", Vectors(ranks, std::vector<float>(whole.size(), std::nanf("")))};
    for (std::size_t i = 0; i < whole.size(); ++i) call.before[i / each][i] = whole[i];
    call.judge([&](const Called& called) {
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < whole.size(); ++i) {
          const float found = called.vectors[rank][i];
          if (found == whole[i]) continue;
          const auto other = static_cast<std::size_t>(std::find(whole.begin(), whole.end(), found) - whole.begin());
          const Message cause =
              std::isnan(found) ? Message({"it was never received", "从未收到"})
              : other < whole.size()
                  ? Message({"it is element {}, from the part of rank {}", "它是元素 {}，属于 rank {} 的部分"}, other,
                            other / each)
                  : Message({"no rank has this value", "没有哪个 rank 有这个值"});
          refuse({"rank {} of {}, the part of rank {}, byte {}: element {} is {}, not {}; {}",
                  "{1} 个 rank 中的 rank {0}，rank {2} 的部分，第 {3} 字节：元素 {4} 是 {5}，应为 {6}；{7}"},
                 rank, ranks, i / each, i * sizeof(float), i, found, whole[i], cause);
        }
      call.check_bytes(called);
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
           {{"reduce_scatter: 1, 2, 3, 5 and 8 ranks", "reduce_scatter：1、2、3、5、8 个 rank"}, 20, check_many, 0},
           {{"reduce_scatter: (n - 1)/n · M bytes at each rank", "reduce_scatter：每个 rank 发送 (n - 1)/n · M 字节"},
            20,
            check_bytes,
            1},
           {{"reduce_scatter: 100 seeds of the simulated network", "reduce_scatter：模拟网络的 100 个种子"},
            10,
            check_seeds,
            1},
           {{"all_gather: values and bytes", "all_gather：数值与字节"}, 30, check_gather}}};
}

}  // namespace psring::cli
