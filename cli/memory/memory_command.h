#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/compare/sweep.h>
#include <psring/cli/options/language.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

// The two halves of psring memory: a job (memory.cpp), and a transformer of which only the size is known
// (memory_transformer.cpp).

struct MemoryFlags {
  options::Given job;
  std::vector<std::string> strategies{"single", "ddp", "zero1", "zero2", "zero3", "ps"};
  std::size_t hosts = 1;
  std::string limit;
  std::string parameters;
  std::string table;
  std::string lookups;
  double zipf = 1.05;
  std::size_t layers = 0;
  std::size_t dim = 0;
  std::size_t heads = 0;
  std::size_t kv_heads = 0;
  std::size_t context = 2048;
  bool inference = false;
  std::size_t weight_bits = 16;
  std::size_t state_bits = 32;
  bool json = false;
  std::string lang = "en";
  std::optional<Sweep> sweep;

  Language language() const { return parse_language(lang); }
  /// The bytes of --limit.
  std::optional<double> limit_bytes() const;
};

/// "1.50 GiB", "3.20 MiB"
std::string size_text(double bytes);

/// The name of a category of memory, or of a term of the calculation.
std::string memory_name(const std::string& name, Language language);

/// The head of a table of processes, and one process. `index`: with the memory of tables' indices.
std::vector<std::string> memory_head(Language language, bool index);
std::vector<std::string> memory_row(const std::string& name, const std::map<Category, std::uint64_t>& memory,
                                    bool index);

/// The bytes by category, and their total.
Json json_of(const std::map<Category, std::uint64_t>& memory);

/// psring memory --parameters. Returns the exit status. Throws usage.
int transformer_memory(const MemoryFlags& flags, const App& app);
/// psring memory --table, alike.
int table_memory(const MemoryFlags& flags, const App& app);
/// The expected number of different keys in so many draws from `rows` keys, of which k has a probability proportional
/// to the integral of x^-exponent from k to k + 1.
double expected_keys(double rows, double exponent, double draws);

/// Returns the largest number in [1, most] that fits, if a larger number never needs less; 0: none.
template <class Fits>
std::size_t largest(std::size_t most, const Fits& fits) {
  std::size_t low = 0;
  std::size_t high = 1;
  while (high <= most && fits(high)) {
    low = high;
    high *= 2;
  }
  high = std::min(high, most + 1);
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

/// Returns the smallest power of two, or number below 16, that fits.
template <class Fits>
std::optional<std::size_t> smallest(std::size_t most, const Fits& fits) {
  for (std::size_t n = 1; n <= most; n = n < 16 ? n + 1 : 2 * n)
    if (fits(n)) return n;
  return std::nullopt;
}

}  // namespace psring::cli
