#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace psring::cli {

/// ok: nothing to do. warn: jobs run, but slower, or not all of them. fail: something that a job needs is missing.
enum class Level : std::uint8_t { ok, warn, fail };

/// The judgement of a measurement, and the cure if it is not ok.
struct Judgement {
  Level level = Level::ok;
  std::string figure;
  std::string cure;
  std::map<std::string, double> values;  ///< the numbers in `figure`, for programs
};

/// A GPU, its memory, and the rates of copies between it and the host's pinned memory.
struct GpuFigures {
  std::string name;
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  double to_device_bytes_per_s = 0;
  double to_host_bytes_per_s = 0;
  std::string trouble = {};  ///< reason why it cannot be used; empty if it can
};

/// Pure functions from measurements to judgements. `processes`: processes of a job, all on this host.

/// Ports that the kernel assigns if a program asks for any port.
Judgement judge_port_range(std::uint64_t first, std::uint64_t last, std::size_t processes);

/// Available memory, and the smallest limit of this process's control groups, if any.
Judgement judge_memory(std::uint64_t available_bytes, std::optional<std::uint64_t> limit_bytes, std::size_t processes);
/// Limits on a process's address space, and on the size of files, including memory files.
Judgement judge_size_limits(std::optional<std::uint64_t> address_space_bytes, std::optional<std::uint64_t> file_bytes);
/// Bytes that were written, and bytes of them in huge pages. `setting`: the kernel's setting for huge pages;
/// `huge_page`: their size, with which fewer bytes have none.
Judgement judge_huge_pages(std::uint64_t bytes, std::uint64_t huge_bytes, const std::string& setting,
                           std::uint64_t huge_page);

Judgement judge_open_files(std::uint64_t soft, std::uint64_t hard, std::size_t processes);
/// Limit of threads and processes of a user or a control group (empty: no limit), and the number that exist.
Judgement judge_tasks(std::optional<std::uint64_t> most, std::uint64_t present, std::size_t processes);
/// Processors that this process may use, those of the host, and the share that its control groups allow.
Judgement judge_processors(std::size_t allowed, std::size_t online, std::optional<double> quota);

/// The processor's features, with the names in /proc/cpuinfo.
Judgement judge_vector_units(const std::set<std::string>& features);
/// Rates of matrix products on one thread.
Judgement judge_products(double f32_flops, double bf16_flops, bool has_bf16_unit);

/// The congestion control of a new socket, and whether Reno is available.
Judgement judge_congestion_control(const std::string& usual, bool reno);

/// The clock: the time of one reading, and the number of backward steps in `looks` readings, over all processors.
Judgement judge_clock(const std::string& source, double seconds_per_look, std::size_t backwards, std::size_t looks);
/// The clock's rate relative to the uncorrected oscillator, minus 1.
Judgement judge_steadiness(double excess);
/// Processors that other programs used during the checks; nothing if that is not known.
Judgement judge_other_load(std::optional<double> processors);

/// Bytes read and written per second.
Judgement judge_memory_speed(double one_thread, double all_threads, std::size_t threads);
Judgement judge_encryption(double bytes_per_s);
/// `reason`: why psring finds no GPU. `driver`: the host has a GPU driver nevertheless.
Judgement judge_accelerators(std::span<const GpuFigures> gpus, const std::string& reason, bool driver);

/// Measurements between two processes, or two hosts.
struct LinkFigures {
  std::string where;               ///< HOST:PORT of the other end
  double round_trip_s = 0;         ///< median
  double least_round_trip_s = 0;   ///< minimum
  double sending_bytes_per_s = 0;  ///< from this host
  double receiving_bytes_per_s = 0;
  double clock_offset_s = 0;                              ///< positive if the other end's wall clock is ahead
  std::vector<std::pair<double, double>> one_way_s = {};  ///< by bytes: half of a round trip, median
};
Judgement judge_loopback(const LinkFigures& figures);
Judgement judge_link(const LinkFigures& figures);
Judgement judge_delay(const LinkFigures& figures);
Judgement judge_offset(const LinkFigures& figures);

}  // namespace psring::cli
