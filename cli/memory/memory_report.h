#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace psring::cli {

/// The peak memory that the operating system counted, in bytes, from a run's memory.jsonl. Empty if it counted none.
struct SystemMemory {
  std::map<std::string, std::uint64_t> rss;  ///< by process, such as "worker 0": resident
  std::map<std::string, std::uint64_t> pss;  ///< the same, with a page that n processes share counted as 1/n
  /// The largest sum of Pss over all processes at one time: their memory together on one host, shared pages once.
  std::optional<std::uint64_t> pss_together;
};

/// Throws data if a line is malformed. Returns an empty result if there is no file.
SystemMemory read_system_memory(const std::filesystem::path& file);

}  // namespace psring::cli
