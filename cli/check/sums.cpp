#include <algorithm>
#include <cmath>

#include <psring/cli/check/sums.h>

namespace psring::cli {
namespace {

constexpr std::size_t kBase = 4;  ///< a rank that is counted up to three times is told apart

/// How often each rank was added; empty if the value is no such sum.
std::vector<std::size_t> counts_of(float counted, std::size_t ranks) {
  if (!(counted >= 0) || counted != std::floor(counted) || counted >= std::pow(float{kBase}, static_cast<float>(ranks)))
    return {};
  auto left = static_cast<std::size_t>(counted);
  std::vector<std::size_t> counts(ranks);
  for (std::size_t& count : counts) {
    count = left % kBase;
    left /= kBase;
  }
  return counts;
}

std::string ranks_with(const std::vector<std::size_t>& counts, std::size_t count) {
  std::string text;
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    if (counts[rank] == count) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

std::string explain_counts(Language language, const std::vector<std::size_t>& counts, std::size_t rank) {
  std::string text;
  const std::size_t total = [&] {
    std::size_t sum = 0;
    for (const std::size_t count : counts) sum += count;
    return sum;
  }();
  if (total == 1 && counts[rank] == 1)
    return say(language,
               Text{"it is the rank's own value alone: nothing was added", "它只是该 rank 自己的值：什么也没有加上"});
  if (const std::string missing = ranks_with(counts, 0); !missing.empty())
    text += say(language, Text{"it lacks the value of rank {}", "缺少 rank {} 的值"}, missing);
  for (const std::size_t times : {std::size_t{2}, std::size_t{3}})
    if (const std::string more = ranks_with(counts, times); !more.empty())
      text += (text.empty() ? "" : say(language, Text{"; ", "；"})) +
              say(language, Text{"it has the value of rank {} {} times", "rank {} 的值加了 {} 次"}, more, times);
  return text;
}

std::string cause_of(Language language, const WrongSum& wrong) {
  if (wrong.complete_part < wrong.ranks)
    return say(language,
               Text{"here the sum of the part of rank {} is complete instead: in the last round a rank has to receive "
                    "its own part",
                    "这里完成的却是 rank {} 的部分之和：最后一轮里，每个 rank 必须收到自己的部分"},
               wrong.complete_part);
  const std::vector<std::size_t> counts = counts_of(wrong.counted, wrong.ranks);
  if (!counts.empty())
    if (std::string text = explain_counts(language, counts, wrong.rank); !text.empty()) return text;
  const float right = wrong.expected[wrong.element];
  if (const auto other = std::find(wrong.expected.begin(), wrong.expected.end(), wrong.found);
      other != wrong.expected.end())
    return say(language, Text{"it is the sum of element {}: the ranges are shifted", "它是元素 {} 的和：区间错位了"},
               other - wrong.expected.begin());
  if (right != 0 && std::isfinite(wrong.found) &&
      std::abs(wrong.found * static_cast<float>(wrong.ranks) - right) < 0.01F * std::abs(right))
    return say(language,
               Text{"it is the mean; a reduce-scatter adds, and does not divide by {}",
                    "它是平均值；reduce-scatter 只相加，不除以 {}"},
               wrong.ranks);
  if (std::isnan(wrong.found))
    return say(language, Text{"it is not a number: an element was read before it was received",
                              "它不是数：某个元素在收到之前就被读取"});
  return say(language, Text{"values of different elements were added: do sender and receiver mean the same range?",
                            "不同元素的值被加在一起：发送方和接收方说的是同一个区间吗？"});
}

}  // namespace

std::vector<std::vector<float>> counting_vectors(std::size_t ranks, std::size_t elements) {
  std::vector<std::vector<float>> vectors;
  float value = 1;
  for (std::size_t rank = 0; rank < ranks; ++rank, value *= kBase) vectors.emplace_back(elements, value);
  return vectors;
}

std::string explain_sum(Language language, const WrongSum& wrong) {
  return say(language,
             Text{"rank {} of {}, its part [{}, {}), byte {}: element {} is {}, not {}; {}",
                  "{1} 个 rank 中的 rank {0}，它的部分 [{2}, {3})，第 {4} 字节：元素 {5} 是 {6}，应为 {7}；{8}"},
             wrong.rank, wrong.ranks, wrong.part.begin, wrong.part.end, wrong.element * sizeof(float), wrong.element,
             wrong.found, wrong.expected[wrong.element], cause_of(language, wrong));
}

std::string explain_gather(Language language, std::size_t rank, std::size_t ranks, std::size_t element,
                           std::span<const float> found, std::span<const float> expected) {
  const std::size_t each = expected.size() / ranks;
  const auto other = std::find(expected.begin(), expected.end(), found[element]);
  std::string cause;
  if (std::isnan(found[element]))
    cause = say(language, Text{"it was never received", "从未收到"});
  else if (other != expected.end())
    cause = say(language, Text{"it is element {}, from the part of rank {}", "它是元素 {}，属于 rank {} 的部分"},
                other - expected.begin(), static_cast<std::size_t>(other - expected.begin()) / each);
  else
    cause = say(language, Text{"no rank has this value", "没有哪个 rank 有这个值"});
  return say(language,
             Text{"rank {} of {}, the part of rank {}, byte {}: element {} is {}, not {}; {}",
                  "{1} 个 rank 中的 rank {0}，rank {2} 的部分，第 {3} 字节：元素 {4} 是 {5}，应为 {6}；{7}"},
             rank, ranks, element / each, element * sizeof(float), element, found[element], expected[element], cause);
}

}  // namespace psring::cli
