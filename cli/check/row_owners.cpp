// Exercise 15: the owners of a table's rows.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/common/base/layout.h>
#include <psring/common/base/rng.h>
#include <psring/optim/rows/row_hash.h>

namespace psring::cli {
namespace {

using Push = void(const exercise::Lookups&, std::span<exercise::RowPush>);
using Update = void(exercise::RowTable&, std::span<const exercise::RowPush>);
using Row = std::vector<float>;

constexpr std::size_t kWidth = 3;
constexpr float kRate = 0.5F;
constexpr float kTolerance = 1e-5F;

bool near(std::span<const float> found, const Row& expected) {
  return found.size() == expected.size() &&
         std::ranges::equal(found, expected, [](float a, float b) { return std::abs(a - b) <= kTolerance; });
}

/// Random values in [-1, 1): another row for each number.
Row random_row(std::uint64_t seed, std::size_t number) {
  const CounterRng random({.seed = seed, .purpose = Purpose::test, .tensor = static_cast<std::uint32_t>(number)});
  Row row;
  for (std::size_t i = 0; i < kWidth; ++i) row.push_back(static_cast<float>(random.bits(i) >> 8) * 0x1p-23F - 1);
  return row;
}

/// A batch whose small ids occur most often, and what a worker has to push.
struct Batch {
  Batch(std::size_t lookups, std::uint64_t seed) {
    const CounterRng random({.seed = seed, .purpose = Purpose::test});
    for (std::size_t i = 0; i < lookups; ++i) {
      const std::uint64_t id = (random.bits(2 * i) % 24) * (random.bits(2 * i + 1) % 24) / 24;
      keys.push_back(optim::mix64(id + 1));
      const Row row = random_row(seed, i + 1);
      gradients.insert(gradients.end(), row.begin(), row.end());
      occurrences[keys.back()].push_back(row);
    }
  }

  exercise::Lookups lookups() const { return {keys, {keys.size(), kWidth, gradients}}; }

  std::vector<std::uint64_t> keys;
  std::vector<float> gradients;
  std::map<std::uint64_t, std::vector<Row>> occurrences;  ///< by key, in the order of the batch
};

Row sum_of(const std::vector<Row>& rows, float factor = 1) {
  Row sum(kWidth);
  for (const Row& row : rows)
    for (std::size_t i = 0; i < kWidth; ++i) sum[i] += row[i] * factor;
  return sum;
}

struct Job {
  std::size_t servers;
  Batch batch;
  std::vector<exercise::RowPush> pushes;
};

/// Lets the solution push a batch to 1, 2 and 4 servers.
std::vector<Job> push_all(const Submission& submission) {
  std::vector<Job> jobs;
  for (const std::size_t servers : {1U, 2U, 4U}) {
    Job& job = jobs.emplace_back(Job{servers, Batch(40, servers), std::vector<exercise::RowPush>(servers)});
    submission.solution->function<Push>("push_rows")(job.batch.lookups(), job.pushes);
  }
  return jobs;
}

void check_owners(const Submission& submission) {
  for (const Job& job : push_all(submission))
    for (std::size_t server = 0; server < job.servers; ++server)
      for (const std::uint64_t key : job.pushes[server].keys) {
        const std::size_t bucket = optim::bucket_of(key);
        const Range own = table_buckets(job.servers, server);
        if (own.contains({bucket, bucket + 1})) continue;
        refuse({"S = {}: the key {:#018x} went to server {}, which owns the buckets {} to {}; its bucket, the top "
                "20 bits, is {}",
                "S = {}：键 {:#018x} 发给了 server {}，它拥有桶 {} 到 {}；而这个键的桶（最高 20 位）是 {}"},
               job.servers, key, server, own.begin, own.end - 1, bucket);
      }
}

void check_keys(const Submission& submission) {
  for (const Job& job : push_all(submission)) {
    std::map<std::uint64_t, std::size_t> pushed;
    for (std::size_t server = 0; server < job.servers; ++server) {
      const std::vector<std::uint64_t>& keys = job.pushes[server].keys;
      for (const std::uint64_t key : keys)
        if (++pushed[key] > 1)
          refuse({"S = {}: the key {:#018x} was pushed more than once; it has {} lookups in the batch, and one row",
                  "S = {}：键 {:#018x} 推送了不止一次；它在 batch 中有 {} 次查找，但只有一行"},
                 job.servers, key, job.batch.occurrences.at(key).size());
      if (!std::ranges::is_sorted(keys))
        refuse({"S = {}: the keys for server {} are not in ascending order, in which it merges the workers' lists",
                "S = {}：发给 server {} 的键不是升序；它按升序归并各个 worker 的列表"},
               job.servers, server);
    }
    for (const auto& [key, rows] : job.batch.occurrences)
      if (!pushed.contains(key))
        refuse({"S = {}: the key {:#018x} of the batch was pushed to no server; its {} gradients are lost",
                "S = {}：batch 中的键 {:#018x} 没有推送给任何 server；它的 {} 个梯度丢失了"},
               job.servers, key, rows.size());
  }
}

/// The likely mistake behind a wrong sum over a key's lookups.
Text cause_of(std::span<const float> found, const std::vector<Row>& rows) {
  if (near(found, rows.back())) return {"that is the gradient of its last lookup alone", "那只是它最后一次查找的梯度"};
  if (near(found, rows.front())) return {"that is the gradient of its first lookup alone", "那只是它第一次查找的梯度"};
  if (near(found, sum_of(rows, 1.0F / static_cast<float>(rows.size()))))
    return {"that is the mean over its lookups; each lookup adds its gradient",
            "那是各次查找的平均；每次查找都要加上它的梯度"};
  return {"add up the gradients of all lookups with this key", "把这个键的所有查找的梯度相加"};
}

void check_sums(const Submission& submission) {
  for (const Job& job : push_all(submission))
    for (std::size_t server = 0; server < job.servers; ++server) {
      const exercise::RowPush& push = job.pushes[server];
      if (push.gradients.size() != push.keys.size() * kWidth)
        refuse({"S = {}: {} values for the {} keys of server {}; rows have {} values each",
                "S = {0}：{1} 个值，而发给 server {3} 的键有 {2} 个；每行有 {4} 个值"},
               job.servers, push.gradients.size(), push.keys.size(), server, kWidth);
      for (std::size_t i = 0; i < push.keys.size(); ++i) {
        const std::vector<Row>& rows = job.batch.occurrences.at(push.keys[i]);
        const std::span<const float> found = std::span(push.gradients).subspan(i * kWidth, kWidth);
        const Row expected = sum_of(rows);
        if (near(found, expected)) continue;
        refuse({"the key {:#018x} has {} lookups: its gradient begins with {:.5g}, not {:.5g}; {}",
                "键 {:#018x} 有 {} 次查找：它的梯度以 {:.5g} 开头，应为 {:.5g}；{}"},
               push.keys[i], rows.size(), found[0], expected[0], cause_of(found, rows));
      }
    }
}

/// The rows of one server, which begin with random values.
class Rows final : public exercise::RowTable {
 public:
  static Row initial(std::uint64_t key) { return random_row(9, key % 1000); }

  std::size_t width() const override { return kWidth; }
  float learning_rate() const override { return kRate; }
  std::span<float> row(std::uint64_t key) override { return rows.try_emplace(key, initial(key)).first->second; }

  std::map<std::uint64_t, Row> rows;
};

/// The likely mistake behind a row that is wrong after an update by `workers` workers.
Text cause_of_row(const Row& found, const Row& before, const std::vector<Row>& rows, std::size_t workers) {
  const auto moved = [&](const Row& gradient, float factor) {
    Row row = before;
    for (std::size_t i = 0; i < kWidth; ++i) row[i] -= kRate * factor * gradient[i];
    return row;
  };
  const Row sum = sum_of(rows);
  const float mean = 1.0F / static_cast<float>(workers);
  if (near(found, before)) return {"it has not changed", "它没有改变"};
  if (near(found, moved(sum, 1.0F / static_cast<float>(rows.size()))))
    return {"that is the mean over the workers that have the key; a worker without it has a gradient of 0, and counts",
            "那是有这个键的 worker 的平均；没有它的 worker 梯度为 0，也要计入"};
  if (near(found, moved(sum, 1)))
    return {"that is the sum of the workers' gradients; the step takes their mean",
            "那是各 worker 梯度之和；一步要取平均"};
  if (near(found, moved(sum, -mean))) return {"it went uphill: subtract", "它走反了方向：应当减去"};
  if (near(found, moved(rows.back(), mean)) || near(found, moved(rows.front(), mean)))
    return {"only one worker's gradient counted", "只计入了一个 worker 的梯度"};
  return {"row -= rate * mean of all workers' gradients", "行 -= 学习率 * 所有 worker 梯度的平均"};
}

void check_update(const Submission& submission) {
  for (const std::size_t workers : {1U, 2U, 3U}) {
    std::vector<exercise::RowPush> pushes(workers);
    std::map<std::uint64_t, std::vector<Row>> pushed;
    for (std::size_t worker = 0; worker < workers; ++worker)
      for (const auto& [key, rows] : Batch(14, 20 + worker).occurrences) {
        const Row gradient = sum_of(rows);
        pushes[worker].keys.push_back(key);
        pushes[worker].gradients.insert(pushes[worker].gradients.end(), gradient.begin(), gradient.end());
        pushed[key].push_back(gradient);
      }
    Rows table;
    submission.solution->function<Update>("update_rows")(table, pushes);
    // Keys of all workers first: if one worker has a key, its gradient is the sum, and the mean over those that have
    // it.
    std::vector<std::pair<std::uint64_t, std::vector<Row>>> order(pushed.begin(), pushed.end());
    std::ranges::stable_sort(order, std::greater(), [](const auto& one) { return one.second.size(); });
    for (const auto& [key, gradients] : order) {
      const auto found = table.rows.find(key);
      if (found == table.rows.end())
        refuse({"n = {}: the row of {:#018x} does not exist, though {} pushed a gradient",
                "n = {}：{:#018x} 的行不存在，但有 {} 个推送了梯度"},
               workers, key, gradients.size());
      Row expected = Rows::initial(key);
      const Row sum = sum_of(gradients);
      for (std::size_t i = 0; i < kWidth; ++i) expected[i] -= kRate * sum[i] / static_cast<float>(workers);
      if (near(found->second, expected)) continue;
      refuse({"n = {}, {} of them pushed {:#018x}: its row begins with {:.5g}, not {:.5g}; {}",
              "n = {}，其中 {} 个推送了 {:#018x}：它的行以 {:.5g} 开头，应为 {:.5g}；{}"},
             workers, gradients.size(), key, found->second[0], expected[0],
             cause_of_row(found->second, Rows::initial(key), gradients, workers));
    }
    for (const auto& [key, row] : table.rows)
      if (!pushed.contains(key))
        refuse({"n = {}: {:#018x} has a row now, though nobody pushed it", "n = {}：{:#018x} 有了一行，但没有人推送它"},
               workers, key);
  }
}

}  // namespace

Exercise row_owners_exercise() {
  return {15,
          "row-owners",
          {"who owns a row: pushes and updates of a table", "谁拥有一行：表的推送与更新"},
          "start.cpp",
          {{{"each key goes to its owner", "每个键发给它的所有者"}, 25, check_owners},
           {{"each key once, in order", "每个键一次，按升序"}, 25, check_keys, 0},
           {{"the sum over a key's lookups", "一个键的各次查找之和"}, 20, check_sums, 1},
           {{"the update: a mean over all workers", "更新：对所有 worker 取平均"}, 30, check_update}}};
}

}  // namespace psring::cli
