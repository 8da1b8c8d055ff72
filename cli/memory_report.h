#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace psring::cli {

/// The most memory that the operating system counted, in bytes, out of a run's memory.jsonl. Nothing where it did not
/// say.
struct SystemMemory {
  std::map<std::string, std::uint64_t> rss;  ///< by process, such as "worker 0": resident
  std::map<std::string, std::uint64_t> pss;  ///< the same, with a page that n processes share counted as 1/n
  /// Of all processes at one time, as each counted last: what they take together on one host, and nothing twice.
  std::optional<std::uint64_t> pss_together;
};

/// Throws data where a line is not what roles write. No file: nothing.
SystemMemory read_system_memory(const std::filesystem::path& file);

}  // namespace psring::cli
