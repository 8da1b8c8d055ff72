// Exercise 04: which samples does a worker train on?
#include <map>

#include <psring/cli/check/exercise.h>
#include <psring/cli/check/exercises.h>
#include <psring/common/base/rng.h>
#include <psring/worker/data/sampler.h>

namespace psring::cli {
namespace {

using SamplesOf = void(const exercise::Place&, std::span<const std::uint32_t>, std::vector<std::uint32_t>&);

/// The hosts of a job, each with as many workers.
struct Hosts {
  std::size_t hosts;
  std::size_t workers;  ///< of each host
  std::size_t samples;

  Message name_of(std::size_t rank) const {
    return {{"rank {} (host {}, local rank {})", "rank {}（主机 {}，local rank {}）"},
            rank,
            rank / workers,
            rank % workers};
  }
};

std::vector<std::uint32_t> shuffled(std::size_t samples, std::uint64_t seed) {
  return worker::permutation(samples, CounterRng({.seed = seed, .purpose = Purpose::shuffle}));
}

/// The samples of every worker, as the student's function gives them.
std::vector<std::vector<std::uint32_t>> ask(const Submission& submission, const Hosts& hosts,
                                            std::span<const std::uint32_t> order) {
  auto* const samples_of = submission.solution->function<SamplesOf>("samples_of");
  const std::size_t workers = hosts.hosts * hosts.workers;
  std::vector<std::vector<std::uint32_t>> lists(workers);
  for (std::size_t rank = 0; rank < workers; ++rank)
    samples_of({rank, rank % hosts.workers, workers, hosts.workers}, order, lists[rank]);
  return lists;
}

void check_once(const Submission& submission, const Hosts& hosts) {
  const auto lists = ask(submission, hosts, shuffled(hosts.samples, 3));
  std::map<std::uint32_t, std::vector<std::size_t>> readers;
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (const std::uint32_t sample : lists[rank]) {
      if (sample >= hosts.samples)
        refuse({"{} reads sample {}, but the last is {}", "{} 读取样本 {}，但最后一个样本是 {}"}, hosts.name_of(rank),
               sample, hosts.samples - 1);
      readers[sample].push_back(rank);
    }
  const std::size_t unread = hosts.samples - readers.size();
  if (hosts.hosts > 1 && !lists[0].empty() && lists[0] == lists[hosts.workers])
    refuse({"{} hosts with {} workers: sample {} is read by {} and by {}, and so are all others: both hosts train "
            "on the same samples",
            "{} 台主机，各 {} 个 worker：样本 {} 由 {}和 {}读取，其他样本也一样：两台主机在同样的样本上训练"},
           hosts.hosts, hosts.workers, lists[0].at(0), hosts.name_of(0), hosts.name_of(hosts.workers));
  for (const auto& [sample, ranks] : readers)
    if (ranks.size() > 1 && (unread > 0 || hosts.samples % lists.size() == 0))
      refuse({"{} hosts with {} workers: sample {} is read by {} and by {}, and {} of {} samples by nobody",
              "{} 台主机，各 {} 个 worker：样本 {} 由 {}和 {}读取，{}/{} 个样本无人读取"},
             hosts.hosts, hosts.workers, sample, hosts.name_of(ranks[0]), hosts.name_of(ranks[1]), unread,
             hosts.samples);
  if (unread > 0)
    refuse({"{} hosts with {} workers: {} of {} samples are read by nobody",
            "{} 台主机，各 {} 个 worker：{}/{} 个样本无人读取"},
           hosts.hosts, hosts.workers, unread, hosts.samples);
  const std::size_t each = (hosts.samples + lists.size() - 1) / lists.size();
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    if (lists[rank].size() != each)
      refuse({"{} has {} samples; every worker needs {}, or the others wait for it in the last step",
              "{} 有 {} 个样本；每个 worker 都要有 {} 个，否则最后一步里别人会等它"},
             hosts.name_of(rank), lists[rank].size(), each);
}

/// The order in which a single process reads: batch b of n workers is, as a set, batch b of one.
void check_order(const Submission& submission) {
  constexpr Hosts kHosts{2, 2, 22};
  const std::vector<std::uint32_t> order = shuffled(kHosts.samples, 5);
  const auto lists = ask(submission, kHosts, order);
  for (std::size_t rank = 0; rank < 4; ++rank)
    for (std::size_t k = 0; k < lists[rank].size(); ++k) {
      const std::size_t place = (k * 4 + rank) % kHosts.samples;
      if (lists[rank][k] != order[place])
        refuse({"{}, sample number {}: it is {}, not {}, which is at position {} of the shuffled order; worker "
                "r takes positions r, r + n, r + 2n, ..., and wraps around at the end",
                "{}，第 {} 个样本：是 {}，应为 {}，它在打乱后顺序的位置 {}；worker r 取位置 r、r + n、r + "
                "2n……，到末尾时绕回开头"},
               kHosts.name_of(rank), k, lists[rank][k], order[place], place);
    }
}

}  // namespace

Exercise sampler_exercise() {
  const auto once = [](const Hosts& hosts) {
    return [hosts](const Submission& submission) { check_once(submission, hosts); };
  };
  return {4,
          "sampler",
          {"a sampler on two hosts: find the bug", "两台主机上的采样器：找出错误"},
          "start.cpp",
          {{{"one host with 4 workers: each sample once", "一台主机，4 个 worker：每个样本一次"},
            10,
            once({1, 4, 64}),
            {},
            true},
           {{"two hosts with 2 workers: each sample once", "两台主机，各 2 个 worker：每个样本一次"},
            50,
            once({2, 2, 64}),
            0},
           {{"61 samples, 3 hosts with 2 workers: as many for each", "61 个样本，3 台主机，各 2 个 worker：数量相同"},
            20,
            once({3, 2, 61}),
            1},
           {{"the order of a single process", "单个进程的顺序"}, 20, check_order, 2}}};
}

}  // namespace psring::cli
