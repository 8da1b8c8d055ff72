#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include <psring/cli/doctor_judge.h>

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

}  // namespace

Judgement judge_port_range(std::uint64_t first, std::uint64_t last, std::size_t processes) {
  const std::uint64_t count = last >= first ? last - first + 1 : 0;
  const std::uint64_t need = ports_of(processes);
  Judgement judged{.figure = fmt::format("{} to {}; {} processes need up to {} ports", first, last, processes, need),
                   .values = {{"ports", static_cast<double>(count)}, {"needed", static_cast<double>(need)}}};
  if (count >= 4 * need) return judged;
  judged.level = count < need ? Level::fail : Level::warn;
  judged.cure = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
  return judged;
}

Judgement judge_memory(std::uint64_t available_bytes, std::optional<std::uint64_t> limit_bytes, std::size_t processes) {
  const std::uint64_t bytes = std::min(available_bytes, limit_bytes.value_or(available_bytes));
  Judgement judged{.figure = size(available_bytes) + " available, " +
                             (limit_bytes ? "the control group's limit is " + size(*limit_bytes)
                                          : std::string("no limit by a control group")),
                   .values = {{"bytes", static_cast<double>(bytes)}}};
  const double each = static_cast<double>(bytes) / static_cast<double>(processes);
  if (each >= kUsualBytes) return judged;
  judged.level = each < kLeastBytes ? Level::fail : Level::warn;
  judged.cure = fmt::format("only {:.0f} MiB for each of {} processes: start fewer processes, or add memory",
                            each / kMiB, processes);
  return judged;
}

Judgement judge_size_limits(std::optional<std::uint64_t> address_space_bytes, std::optional<std::uint64_t> file_bytes) {
  if (!address_space_bytes && !file_bytes) return {.figure = "address space and files without limit"};
  Judgement judged{.level = Level::warn,
                   .cure = "ulimit -v unlimited -f unlimited: shared memory counts towards both limits"};
  if (address_space_bytes) judged.figure = "address space up to " + size(*address_space_bytes);
  if (file_bytes) judged.figure += (judged.figure.empty() ? "" : ", ") + ("files up to " + size(*file_bytes));
  const std::uint64_t least = std::min(address_space_bytes.value_or(UINT64_MAX), file_bytes.value_or(UINT64_MAX));
  judged.values = {{"bytes", static_cast<double>(least)}};
  if (static_cast<double>(address_space_bytes.value_or(UINT64_MAX)) < kLeastAddressSpace ||
      static_cast<double>(file_bytes.value_or(UINT64_MAX)) < kUsualBytes)
    judged.level = Level::fail;
  return judged;
}

Judgement judge_huge_pages(std::uint64_t bytes, std::uint64_t huge_bytes, const std::string& setting) {
  Judgement judged{.figure = fmt::format("{} of {} MiB of shared memory in huge pages, the kernel's setting is '{}'",
                                         huge_bytes >> 20, bytes >> 20, setting),
                   .values = {{"bytes", static_cast<double>(bytes)}, {"huge_bytes", static_cast<double>(huge_bytes)}}};
  if (huge_bytes * 2 >= bytes) return judged;
  judged.level = Level::warn;
  const bool off = setting == "never" || setting == "deny";
  judged.cure = off ? "faster with: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"
                    : "memory is fragmented: faster after echo 1 > /proc/sys/vm/compact_memory";
  return judged;
}

Judgement judge_open_files(std::uint64_t soft, std::uint64_t hard, std::size_t processes) {
  const std::uint64_t need = descriptors_of(processes);
  Judgement judged{
      .figure = fmt::format("{} per process; in a job of {} a process opens up to {}", soft, processes, need),
      .values = {{"files", static_cast<double>(soft)}, {"needed", static_cast<double>(need)}}};
  if (soft >= need) return judged;
  judged.level = Level::fail;
  judged.cure = hard >= need
                    ? fmt::format("ulimit -n {}", need)
                    : fmt::format("raise the hard limit of {} (limits.conf, LimitNOFILE, docker --ulimit)", hard);
  return judged;
}

Judgement judge_tasks(std::optional<std::uint64_t> most, std::uint64_t present, std::size_t processes) {
  const std::uint64_t need = threads_of(processes);
  if (!most) return {.figure = "no limit", .values = {{"needed", static_cast<double>(need)}}};
  const std::uint64_t left = *most > present ? *most - present : 0;
  Judgement judged{
      .figure = fmt::format("{} more threads allowed; a job of {} processes needs up to {}", left, processes, need),
      .values = {{"left", static_cast<double>(left)}, {"needed", static_cast<double>(need)}}};
  if (left >= 2 * need) return judged;
  judged.level = left < need ? Level::fail : Level::warn;
  judged.cure = "raise ulimit -u, or the control group's pids.max (TasksMax, docker --pids-limit)";
  return judged;
}

Judgement judge_processors(std::size_t allowed, std::size_t online, std::optional<double> quota) {
  Judgement judged{.figure = fmt::format("{} of {} processors may be used{}", allowed, online,
                                         quota ? fmt::format(", for the time of {:.3g} processors", *quota) : ""),
                   .values = {{"processors", static_cast<double>(allowed)}}};
  if (quota) judged.values["quota"] = *quota;
  if (quota && *quota < static_cast<double>(allowed)) {
    judged.level = Level::warn;
    judged.cure =
        "the control group stops processes that use more: raise cpu.max (docker --cpus), or pin the job with taskset";
  } else if (allowed < 2) {
    judged.level = Level::warn;
    judged.cure = "the processes of a job share one processor: measured speeds mean little";
  }
  return judged;
}

Judgement judge_vector_units(const std::set<std::string>& features) {
  constexpr std::array<std::string_view, 4> kNeeded = {"avx2", "fma", "f16c", "bmi2"};
  struct Unit {
    const char* feature;
    const char* name;
  };
  constexpr std::array<Unit, 5> kUnits = {{{"avx2", "AVX2"},
                                           {"avx512f", "AVX-512"},
                                           {"avx512_bf16", "AVX-512 BF16"},
                                           {"amx_bf16", "AMX BF16"},
                                           {"amx_int8", "AMX INT8"}}};
  Judgement judged;
  std::string absent;
  for (const Unit& unit : kUnits) {
    const bool has = features.contains(unit.feature);
    std::string& list = has ? judged.figure : absent;
    list += (list.empty() ? "" : ", ") + std::string(unit.name);
    judged.values[unit.feature] = has ? 1 : 0;
  }
  if (!absent.empty()) judged.figure += (judged.figure.empty() ? "no " : "; no ") + absent;
  for (const std::string_view needed : kNeeded) {
    if (features.contains(std::string(needed))) continue;
    judged.level = Level::fail;
    judged.cure = "psring is built for x86-64-v3 and needs " + std::string(needed) + ": use another processor";
    break;
  }
  return judged;
}

Judgement judge_products(double f32_flops, double bf16_flops, bool has_bf16_unit) {
  const double ratio = bf16_flops / f32_flops;
  Judgement judged{.figure = fmt::format("f32 {:.3g}, bf16 {:.3g} GFLOP/s per thread: bf16 is {:.2g} x as fast",
                                         f32_flops / 1e9, bf16_flops / 1e9, ratio),
                   .values = {{"f32_flops", f32_flops}, {"bf16_flops", bf16_flops}}};
  if (ratio >= 1.1) return judged;
  if (has_bf16_unit) {
    judged.level = Level::warn;
    judged.cure = "the processor's bf16 unit is not used: unset ONEDNN_MAX_CPU_ISA, or install a newer oneDNN";
  } else {
    judged.figure += "; --precision bf16 saves memory and bytes here, not time";
  }
  return judged;
}

Judgement judge_congestion_control(const std::string& usual, bool reno) {
  Judgement judged{.figure = fmt::format("{}; within a host psring {}", usual, reno ? "uses reno" : "cannot use reno"),
                   .values = {{"reno", reno ? 1 : 0}}};
  if (reno || usual == "cubic" || usual == "reno") return judged;
  judged.level = Level::warn;
  judged.cure = "sysctl -w net.ipv4.tcp_allowed_congestion_control='reno cubic " + usual + "'";
  return judged;
}

Judgement judge_clock(const std::string& source, double seconds_per_look, std::size_t backwards, std::size_t looks) {
  Judgement judged{.figure = fmt::format("monotonic, from {}, {} per reading, {} readings on all processors", source,
                                         time(seconds_per_look), looks),
                   .values = {{"seconds_per_look", seconds_per_look}, {"backwards", static_cast<double>(backwards)}}};
  if (backwards > 0) {
    judged.level = Level::fail;
    judged.figure += fmt::format(", of which {} went backwards", backwards);
    judged.cure = "processors' clocks differ: boot with clocksource=hpet";
  } else if (seconds_per_look > kSlowLook) {
    judged.level = Level::warn;
    judged.cure = "slow: boot with clocksource=tsc, or kvm-clock in a virtual machine";
  }
  return judged;
}

Judgement judge_steadiness(double excess) {
  Judgement judged{.figure = fmt::format("{:+.1f} ppm against the bare oscillator", excess * 1e6),
                   .values = {{"excess", excess}}};
  if (std::abs(excess) <= kMostSlew) return judged;
  judged.level = Level::warn;
  judged.cure = "the clock is being adjusted: wait until NTP has set it, or until the host is idle";
  return judged;
}

Judgement judge_other_load(std::optional<double> processors) {
  if (!processors)
    return {.level = Level::warn,
            .figure = "the load of other programs is not known: /proc/stat has no processors",
            .cure = "mount /proc: without it the measured rates may be too low"};
  Judgement judged{.figure = fmt::format("other programs used {:.2f} processors meanwhile", *processors),
                   .values = {{"processors", *processors}}};
  if (*processors <= kOtherLoad) return judged;
  judged.level = Level::warn;
  judged.cure = "end them and measure again: the measured rates are too low";
  return judged;
}

Judgement judge_memory_speed(double one_thread, double all_threads, std::size_t threads) {
  Judgement judged{.figure = fmt::format("a copy reads and writes {} on one thread, {} on {}", rate(one_thread),
                                         rate(all_threads), threads),
                   .values = {{"one_thread", one_thread}, {"all_threads", all_threads}}};
  if (all_threads >= kSlowCopy) return judged;
  judged.level = Level::warn;
  judged.cure = "other programs or other guests of this machine use its memory: measure again without them";
  return judged;
}

Judgement judge_encryption(double bytes_per_s) {
  Judgement judged{.figure = fmt::format("{} per thread, encrypted and decrypted", rate(bytes_per_s)),
                   .values = {{"bytes_per_s", bytes_per_s}}};
  if (bytes_per_s >= kSlowCipher) return judged;
  judged.level = Level::warn;
  judged.cure = "use --encrypt off if you trust the hosts and the network between them";
  return judged;
}

Judgement judge_accelerators(std::span<const GpuFigures> gpus, const std::string& reason, bool driver) {
  Judgement judged{.values = {{"gpus", static_cast<double>(gpus.size())}}};
  if (gpus.empty()) {
    judged.figure = "none: " + reason;
    if (!driver) return judged;
    judged.level = Level::warn;
    judged.cure = "a GPU driver is installed (see nvidia-smi): psring needs a CUDA version that the driver supports";
    return judged;
  }
  for (const GpuFigures& gpu : gpus) {
    if (!judged.figure.empty()) judged.figure += "; ";
    if (!gpu.trouble.empty()) {
      judged.figure += gpu.trouble;
      judged.level = Level::warn;
      continue;
    }
    judged.figure += fmt::format("{}: {} of {} GiB free, {} to it, {} from it", gpu.name, gpu.free_bytes >> 30,
                                 gpu.total_bytes >> 30, rate(gpu.to_device_bytes_per_s), rate(gpu.to_host_bytes_per_s));
    const double slower = std::min(gpu.to_device_bytes_per_s, gpu.to_host_bytes_per_s);
    double& least = judged.values.try_emplace("copy_bytes_per_s", slower).first->second;
    least = std::min(least, slower);
    if (slower < kSlowGpuCopies) judged.level = Level::warn;
  }
  if (judged.level == Level::warn)
    judged.cure =
        "jobs without GPUs are not affected; if copies are slow, use a PCIe link with more lanes, on this processor's "
        "side";
  return judged;
}

namespace {

Judgement link_values(const LinkFigures& figures) {
  return {.values = {{"round_trip_s", figures.round_trip_s},
                     {"least_round_trip_s", figures.least_round_trip_s},
                     {"sending_bytes_per_s", figures.sending_bytes_per_s},
                     {"receiving_bytes_per_s", figures.receiving_bytes_per_s}}};
}

double slower_way(const LinkFigures& figures) {
  return std::min(figures.sending_bytes_per_s, figures.receiving_bytes_per_s);
}

}  // namespace

Judgement judge_loopback(const LinkFigures& figures) {
  Judgement judged = link_values(figures);
  judged.figure = fmt::format("TCP {} there, {} back, round trip {}", rate(figures.sending_bytes_per_s),
                              rate(figures.receiving_bytes_per_s), time(figures.round_trip_s));
  if (slower_way(figures) >= kSlowLoopback) return judged;
  judged.level = Level::warn;
  judged.cure =
      "jobs over shared memory (the default) are not affected; a packet filter or other programs may slow loopback "
      "down";
  return judged;
}

Judgement judge_link(const LinkFigures& figures) {
  Judgement judged = link_values(figures);
  judged.figure = fmt::format("{} to {}, {} from there, not encrypted", rate(figures.sending_bytes_per_s),
                              figures.where, rate(figures.receiving_bytes_per_s));
  const double most = std::max(figures.sending_bytes_per_s, figures.receiving_bytes_per_s);
  if (slower_way(figures) < kSlowLink) {
    judged.level = Level::warn;
    judged.cure =
        "training will wait for the link: use a faster network, or larger steps (--global-batch, --accumulate)";
  } else if (slower_way(figures) < most / 4) {
    judged.level = Level::warn;
    judged.cure = "one direction is much slower: check the card's errors (ip -s link) and its duplex mode (ethtool)";
  }
  return judged;
}

Judgement judge_delay(const LinkFigures& figures) {
  Judgement judged = link_values(figures);
  judged.figure =
      fmt::format("round trip {}, {} at best", time(figures.round_trip_s), time(figures.least_round_trip_s));
  if (figures.round_trip_s < kLongRoundTrip) return judged;
  judged.level = Level::warn;
  judged.cure = "each step waits for several round trips: use hosts in one network, or larger steps (--accumulate)";
  return judged;
}

Judgement judge_offset(const LinkFigures& figures) {
  Judgement judged{
      .figure = fmt::format("the other host's clock is {} {}, give or take {}", time(std::abs(figures.clock_offset_s)),
                            figures.clock_offset_s < 0 ? "behind" : "ahead", time(figures.least_round_trip_s / 2)),
      .values = {{"offset_s", figures.clock_offset_s}}};
  if (std::abs(figures.clock_offset_s) <= kLargeOffset) return judged;
  judged.level = Level::warn;
  judged.cure = "jobs are not affected, but logs are hard to compare: run an NTP client (chrony) on both hosts";
  return judged;
}

}  // namespace psring::cli
