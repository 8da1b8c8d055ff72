#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

namespace psring::cli {

/// ok: nothing to do. warn: jobs run, but slower, or not all of them. fail: something that a job needs is missing.
enum class Level : std::uint8_t { ok, warn, fail };

/// What a figure means, and what helps; a cure where it is not ok.
struct Judgement {
  Level level = Level::ok;
  std::string figure;
  std::string cure;
  std::map<std::string, double> values;  ///< the figure's numbers, for programs
};

/// A GPU, its memory, and copies between it and pinned memory of this host.
struct GpuFigures {
  std::string name;
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  std::string trouble = {};  ///< why it cannot be used; empty: it can
};

/// From figures to judgements: pure, no figure is read here. `processes` are those of a job, all on this host.

/// Ports that the kernel gives to who asks for any.
Judgement judge_port_range(std::uint64_t first, std::uint64_t last, std::size_t processes);

/// Memory that could be taken now, and the least limit of our control groups; none: no limit.
Judgement judge_memory(std::uint64_t available_bytes, std::optional<std::uint64_t> limit_bytes, std::size_t processes);
/// Limits of a process: of what it may map, and of a file, a memory file too.
Judgement judge_size_limits(std::optional<std::uint64_t> address_space_bytes, std::optional<std::uint64_t> file_bytes);
/// What was written, and how much of it the kernel keeps in huge pages; `setting`: its setting of when it does.
Judgement judge_huge_pages(std::uint64_t bytes, std::uint64_t huge_bytes, const std::string& setting);

Judgement judge_open_files(std::uint64_t soft, std::uint64_t hard, std::size_t processes);
/// Threads and processes that may be, of a user or a control group, and those that are; none: no limit.
Judgement judge_tasks(std::optional<std::uint64_t> most, std::uint64_t present, std::size_t processes);
/// Processors that we may run on, those of the host, and how many of them our control groups let us use.
Judgement judge_processors(std::size_t allowed, std::size_t online, std::optional<double> quota);

/// The processor's features, in /proc/cpuinfo's words.
Judgement judge_vector_units(const std::set<std::string>& features);
/// Products of matrices on one thread.
Judgement judge_products(double f32_flops, double bf16_flops, bool has_bf16_unit);

/// The congestion control of a new socket, and whether Reno could be had.
Judgement judge_congestion_control(const std::string& usual, bool reno);

/// The clock: what a look at it costs, and how often it went backwards in `looks`, over all processors.
Judgement judge_clock(const std::string& source, double seconds_per_look, std::size_t backwards, std::size_t looks);
/// How much faster the clock ran than the bare oscillator, as a part of the time.
Judgement judge_steadiness(double excess);
/// Processors that other programs used meanwhile.
Judgement judge_other_load(double processors);

/// Bytes read and written a second.
Judgement judge_memory_speed(double one_thread, double all_threads, std::size_t threads);
Judgement judge_encryption(double bytes_per_s);
/// `why_none`: where psring finds none; `driver`: the host has one for GPUs all the same.
Judgement judge_accelerators(std::span<const GpuFigures> gpus, const std::string& why_none, bool driver);

/// What passed between two processes, or two hosts.
struct LinkFigures {
  std::string where;               ///< HOST:PORT of the other end
  double round_trip_s = 0;         ///< median
  double least_round_trip_s = 0;   ///< of all
  double sending_bytes_per_s = 0;  ///< from here
  double receiving_bytes_per_s = 0;
  double clock_offset_s = 0;  ///< by which the other end's wall clock is ahead
};
Judgement judge_loopback(const LinkFigures& figures);
Judgement judge_link(const LinkFigures& figures);
Judgement judge_delay(const LinkFigures& figures);
Judgement judge_offset(const LinkFigures& figures);

}  // namespace psring::cli
