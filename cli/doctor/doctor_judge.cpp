#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include <psring/cli/doctor/doctor_judge.h>

namespace psring::cli {
namespace {

constexpr double kMiB = 1 << 20;

std::string size(std::uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}
std::string rate(double bytes_per_s) {
  return bytes_per_s < 1e8 ? fmt::format("{:.3g} MB/s", bytes_per_s / 1e6)
                           : fmt::format("{:.3g} GB/s", bytes_per_s / 1e9);
}
std::string time(double seconds) {
  const double most = std::abs(seconds);
  if (most < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (most < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return most < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

/// Descriptors that the largest process of a job opens. Measured for 6 to 12 processes, shared memory and TCP: the
/// maximum was 84, in a server of a job with 12 processes.
std::uint64_t descriptors_of(std::size_t processes) { return 64 + 6 * processes; }
/// Threads of a job with one compute thread per process: up to 7 were measured in a process.
std::uint64_t threads_of(std::size_t processes) { return 8 * (processes + 2); }
/// Ports of a job: one for each link between two processes, and three listening ports per process.
std::uint64_t ports_of(std::size_t processes) { return processes * (processes - 1) / 2 + 3 * processes; }

constexpr double kLeastBytes = 32 * kMiB;          // of a process with a tiny model
constexpr double kUsualBytes = 256 * kMiB;         // enough for small models
constexpr double kLeastAddressSpace = 512 * kMiB;  // a process with a tiny model takes up to 480 MiB (measured)
constexpr double kSlowLook = 1e-6;                 // a step reads the clock some hundred times
constexpr double kSlowCopy = 4e9;                  // a tenth of the rate of two processors
constexpr double kSlowLoopback = 5e8;              // a quarter of the TCP rate on the machine of docs/results.md
constexpr double kSlowGpuCopies = 6e9;             // eight lanes of PCIe 3
constexpr double kSlowCipher = 2e8;
constexpr double kSlowLink = 1.1e7;  // 100 Mbit/s, less TCP's own overhead
constexpr double kLongRoundTrip = 0.01;
constexpr double kLargeOffset = 0.5;
constexpr double kMostSlew = 501e-6;  // NTP adjusts a clock by at most 500 ppm
constexpr double kOtherLoad = 0.25;

struct Rule {
  bool applies;
  std::string cure;
  Level level = Level::warn;
};

/// A judgement by the first rule that applies; ok without one.
Judgement judged(std::string figure, std::map<std::string, double> values, std::initializer_list<Rule> rules) {
  Judgement judgement{.figure = std::move(figure), .values = std::move(values)};
  const Rule* const rule = std::find_if(rules.begin(), rules.end(), [](const Rule& each) { return each.applies; });
  if (rule == rules.end()) return judgement;
  judgement.level = rule->level;
  judgement.cure = rule->cure;
  return judgement;
}

template <class T>
double number(T count) {
  return static_cast<double>(count);
}

std::map<std::string, double> link_values(const LinkFigures& figures) {
  return {{"round_trip_s", figures.round_trip_s},
          {"least_round_trip_s", figures.least_round_trip_s},
          {"sending_bytes_per_s", figures.sending_bytes_per_s},
          {"receiving_bytes_per_s", figures.receiving_bytes_per_s}};
}

double slower_way(const LinkFigures& figures) {
  return std::min(figures.sending_bytes_per_s, figures.receiving_bytes_per_s);
}

}  // namespace

Judgement judge_port_range(std::uint64_t first, std::uint64_t last, std::size_t processes) {
  const std::uint64_t count = last >= first ? last - first + 1 : 0;
  const std::uint64_t need = ports_of(processes);
  const char* const cure = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
  return judged(fmt::format("{} to {}; {} processes need up to {} ports", first, last, processes, need),
                {{"ports", number(count)}, {"needed", number(need)}},
                {{count < need, cure, Level::fail}, {count < 4 * need, cure}});
}

Judgement judge_memory(std::uint64_t available_bytes, std::optional<std::uint64_t> limit_bytes, std::size_t processes) {
  const std::uint64_t bytes = std::min(available_bytes, limit_bytes.value_or(available_bytes));
  const double each = number(bytes) / number(processes);
  return judged(
      size(available_bytes) + " available, " +
          (limit_bytes ? "the control group's limit is " + size(*limit_bytes) : "no limit by a control group"),
      {{"bytes", number(bytes)}},
      {{each < kUsualBytes,
        fmt::format("only {:.0f} MiB for each of {} processes: start fewer processes, or add memory", each / kMiB,
                    processes),
        each < kLeastBytes ? Level::fail : Level::warn}});
}

Judgement judge_size_limits(std::optional<std::uint64_t> address_space_bytes, std::optional<std::uint64_t> file_bytes) {
  if (!address_space_bytes && !file_bytes) return {.figure = "address space and files without limit"};
  const std::uint64_t space = address_space_bytes.value_or(UINT64_MAX);
  const std::uint64_t file = file_bytes.value_or(UINT64_MAX);
  const bool fails = number(space) < kLeastAddressSpace || number(file) < kUsualBytes;
  return judged(
      fmt::format("{}{}{}", address_space_bytes ? "address space up to " + size(space) : "",
                  address_space_bytes && file_bytes ? ", " : "", file_bytes ? "files up to " + size(file) : ""),
      {{"bytes", number(std::min(space, file))}},
      {{true, "ulimit -v unlimited -f unlimited: shared memory counts towards both limits",
        fails ? Level::fail : Level::warn}});
}

Judgement judge_huge_pages(std::uint64_t bytes, std::uint64_t huge_bytes, const std::string& setting,
                           std::uint64_t huge_page) {
  if (bytes < huge_page) return {.figure = fmt::format("a huge page of this kernel has {} MiB", huge_page >> 20)};
  const bool few = huge_bytes * 2 < bytes;
  return judged(fmt::format("{} of {} MiB of shared memory in huge pages, the kernel's setting is '{}'",
                            huge_bytes >> 20, bytes >> 20, setting),
                {{"bytes", number(bytes)}, {"huge_bytes", number(huge_bytes)}},
                {{few && (setting == "never" || setting == "deny"),
                  "faster with: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"},
                 {few, "memory is fragmented: faster after echo 1 > /proc/sys/vm/compact_memory"}});
}

Judgement judge_open_files(std::uint64_t soft, std::uint64_t hard, std::size_t processes) {
  const std::uint64_t need = descriptors_of(processes);
  return judged(
      fmt::format("{} per process; in a job of {} a process opens up to {}", soft, processes, need),
      {{"files", number(soft)}, {"needed", number(need)}},
      {{soft < need && hard >= need, fmt::format("ulimit -n {}", need), Level::fail},
       {soft < need, fmt::format("raise the hard limit of {} (limits.conf, LimitNOFILE, docker --ulimit)", hard),
        Level::fail}});
}

Judgement judge_tasks(std::optional<std::uint64_t> most, std::uint64_t present, std::size_t processes) {
  const std::uint64_t need = threads_of(processes);
  if (!most) return {.figure = "no limit", .values = {{"needed", number(need)}}};
  const std::uint64_t left = *most > present ? *most - present : 0;
  return judged(fmt::format("{} more threads allowed; a job of {} processes needs up to {}", left, processes, need),
                {{"left", number(left)}, {"needed", number(need)}},
                {{left < 2 * need, "raise ulimit -u, or the control group's pids.max (TasksMax, docker --pids-limit)",
                  left < need ? Level::fail : Level::warn}});
}

Judgement judge_processors(std::size_t allowed, std::size_t online, std::optional<double> quota) {
  Judgement judgement = judged(
      fmt::format("{} of {} processors may be used{}", allowed, online,
                  quota ? fmt::format(", for the time of {:.3g} processors", *quota) : ""),
      {{"processors", number(allowed)}},
      {{quota && *quota < number(allowed),
        "the control group stops processes that use more: raise cpu.max (docker --cpus), or pin the job with taskset"},
       {allowed < 2, "the processes of a job share one processor: measured speeds mean little"}});
  if (quota) judgement.values["quota"] = *quota;
  return judgement;
}

Judgement judge_vector_units(const std::set<std::string>& features) {
  constexpr std::pair<const char*, const char*> kUnits[] = {{"avx2", "AVX2"},
                                                            {"avx512f", "AVX-512"},
                                                            {"avx512_bf16", "AVX-512 BF16"},
                                                            {"amx_bf16", "AMX BF16"},
                                                            {"amx_int8", "AMX INT8"}};
  std::string present;
  std::string absent;
  std::map<std::string, double> values;
  for (const auto& [feature, name] : kUnits) {
    const bool has = features.contains(feature);
    std::string& list = has ? present : absent;
    list += (list.empty() ? "" : ", ") + std::string(name);
    values[feature] = has ? 1 : 0;
  }
  if (!absent.empty()) present += (present.empty() ? "no " : "; no ") + absent;
  const auto lacks = [&](const char* needed) -> Rule {
    return {!features.contains(needed),
            fmt::format("psring is built for x86-64-v3 and needs {}: use another processor", needed), Level::fail};
  };
  return judged(present, values, {lacks("avx2"), lacks("fma"), lacks("f16c"), lacks("bmi2")});
}

Judgement judge_products(double f32_flops, double bf16_flops, bool has_bf16_unit) {
  const double ratio = bf16_flops / f32_flops;
  const bool slow = ratio < 1.1;
  return judged(fmt::format("f32 {:.3g}, bf16 {:.3g} GFLOP/s per thread: bf16 is {:.2g} x as fast{}", f32_flops / 1e9,
                            bf16_flops / 1e9, ratio,
                            slow && !has_bf16_unit ? "; --precision bf16 saves memory and bytes here, not time" : ""),
                {{"f32_flops", f32_flops}, {"bf16_flops", bf16_flops}},
                {{slow && has_bf16_unit,
                  "the processor's bf16 unit is not used: unset ONEDNN_MAX_CPU_ISA, or install a newer oneDNN"}});
}

Judgement judge_congestion_control(const std::string& usual, bool reno) {
  return judged(fmt::format("{}; within a host psring {}", usual, reno ? "uses reno" : "cannot use reno"),
                {{"reno", reno ? 1 : 0}},
                {{!reno && usual != "cubic" && usual != "reno",
                  "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic " + usual + "'"}});
}

Judgement judge_clock(const std::string& source, double seconds_per_look, std::size_t backwards, std::size_t looks) {
  return judged(
      fmt::format("monotonic, from {}, {} per reading, {} readings on all processors{}", source, time(seconds_per_look),
                  looks, backwards > 0 ? fmt::format(", of which {} went backwards", backwards) : ""),
      {{"seconds_per_look", seconds_per_look}, {"backwards", number(backwards)}},
      {{backwards > 0, "processors' clocks differ: boot with clocksource=hpet", Level::fail},
       {seconds_per_look > kSlowLook, "slow: boot with clocksource=tsc, or kvm-clock in a virtual machine"}});
}

Judgement judge_steadiness(double excess) {
  return judged(fmt::format("{:+.1f} ppm against the bare oscillator", excess * 1e6), {{"excess", excess}},
                {{std::abs(excess) > kMostSlew,
                  "the clock is being adjusted: wait until NTP has set it, or until the host is idle"}});
}

Judgement judge_other_load(std::optional<double> processors) {
  if (!processors)
    return {.level = Level::warn,
            .figure = "the load of other programs is not known: /proc/stat has no processors",
            .cure = "mount /proc: without it the measured rates may be too low"};
  return judged(fmt::format("other programs used {:.2f} processors meanwhile", *processors),
                {{"processors", *processors}},
                {{*processors > kOtherLoad, "end them and measure again: the measured rates are too low"}});
}

Judgement judge_memory_speed(double one_thread, double all_threads, std::size_t threads) {
  return judged(
      fmt::format("a copy reads and writes {} on one thread, {} on {}", rate(one_thread), rate(all_threads), threads),
      {{"one_thread", one_thread}, {"all_threads", all_threads}},
      {{all_threads < kSlowCopy,
        "other programs or other guests of this machine use its memory: measure again without them"}});
}

Judgement judge_encryption(double bytes_per_s) {
  return judged(fmt::format("{} per thread, encrypted and decrypted", rate(bytes_per_s)),
                {{"bytes_per_s", bytes_per_s}},
                {{bytes_per_s < kSlowCipher, "use --encrypt off if you trust the hosts and the network between them"}});
}

Judgement judge_accelerators(std::span<const GpuFigures> gpus, const std::string& reason, bool driver) {
  std::string figure = gpus.empty() ? "none: " + reason : "";
  std::map<std::string, double> values = {{"gpus", number(gpus.size())}};
  bool slow = false;
  for (const GpuFigures& gpu : gpus) {
    if (!figure.empty()) figure += "; ";
    if (!gpu.trouble.empty()) {
      figure += gpu.trouble;
      slow = true;
      continue;
    }
    figure += fmt::format("{}: {} of {} GiB free, {} to it, {} from it", gpu.name, gpu.free_bytes >> 30,
                          gpu.total_bytes >> 30, rate(gpu.to_device_bytes_per_s), rate(gpu.to_host_bytes_per_s));
    const double slower = std::min(gpu.to_device_bytes_per_s, gpu.to_host_bytes_per_s);
    double& least = values.try_emplace("copy_bytes_per_s", slower).first->second;
    least = std::min(least, slower);
    slow = slow || slower < kSlowGpuCopies;
  }
  return judged(
      figure, values,
      {{gpus.empty() && driver,
        "a GPU driver is installed (see nvidia-smi): psring needs a CUDA version that the driver supports"},
       {slow,
        "jobs without GPUs are not affected; if copies are slow, use a PCIe link with more lanes, on this processor's "
        "side"}});
}

Judgement judge_loopback(const LinkFigures& figures) {
  return judged(fmt::format("TCP {} there, {} back, round trip {}", rate(figures.sending_bytes_per_s),
                            rate(figures.receiving_bytes_per_s), time(figures.round_trip_s)),
                link_values(figures),
                {{slower_way(figures) < kSlowLoopback,
                  "jobs over shared memory (the default) are not affected; a packet filter or other programs may slow "
                  "loopback down"}});
}

Judgement judge_link(const LinkFigures& figures) {
  const double most = std::max(figures.sending_bytes_per_s, figures.receiving_bytes_per_s);
  return judged(
      fmt::format("{} to {}, {} from there, not encrypted", rate(figures.sending_bytes_per_s), figures.where,
                  rate(figures.receiving_bytes_per_s)),
      link_values(figures),
      {{slower_way(figures) < kSlowLink,
        "training will wait for the link: use a faster network, or larger steps (--global-batch, --accumulate)"},
       {slower_way(figures) < most / 4,
        "one direction is much slower: check the card's errors (ip -s link) and its duplex mode (ethtool)"}});
}

Judgement judge_delay(const LinkFigures& figures) {
  return judged(
      fmt::format("round trip {}, {} at best", time(figures.round_trip_s), time(figures.least_round_trip_s)),
      link_values(figures),
      {{figures.round_trip_s >= kLongRoundTrip,
        "each step waits for several round trips: use hosts in one network, or larger steps (--accumulate)"}});
}

Judgement judge_offset(const LinkFigures& figures) {
  return judged(fmt::format("the other host's clock is {} {}, give or take {}", time(std::abs(figures.clock_offset_s)),
                            figures.clock_offset_s < 0 ? "behind" : "ahead", time(figures.least_round_trip_s / 2)),
                {{"offset_s", figures.clock_offset_s}},
                {{std::abs(figures.clock_offset_s) > kLargeOffset,
                  "jobs are not affected, but logs are hard to compare: run an NTP client (chrony) on both hosts"}});
}

}  // namespace psring::cli
