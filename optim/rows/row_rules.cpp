#include <algorithm>
#include <limits>

#include <psring/common/base/layout.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/optim/rows/row_rules.h>

namespace psring::optim {
namespace {

constexpr std::size_t kGroups = kBuckets / kCut;

/// Splits COUNT[,key=N]: the text before the first comma, and behind it.
std::pair<std::string, std::string> cut_at_comma(const std::string& text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) return {text, ""};
  return {text.substr(0, comma), text.substr(comma + 1)};
}

}  // namespace

RowRules parse_row_rules(const std::string& admit, const std::string& ttl, const std::string& rows,
                         std::uint64_t sweep) {
  RowRules rules{.sweep = sweep};
  if (!admit.empty()) {
    const auto [count, option] = cut_at_comma(admit);
    rules.admit = parse_positive("--table-admit", count);
    if (rules.admit > std::numeric_limits<std::uint32_t>::max())
      fail(ErrorKind::usage, "--table-admit {}: occurrences are counted up to 2^32 - 1", count);
    rules.zero = option == "zero";
    if (!rules.zero && count.size() != admit.size())
      fail(ErrorKind::usage, "--table-admit: expected K or K,zero, got '{}'", admit);
  }
  if (!ttl.empty()) {
    const auto [steps, option] = cut_at_comma(ttl);
    rules.ttl = parse_positive("--table-ttl", steps);
    if (option.starts_with("keep="))
      rules.keep = parse_count("--table-ttl keep", option.substr(5));
    else if (steps.size() != ttl.size())
      fail(ErrorKind::usage, "--table-ttl: expected STEPS or STEPS,keep=N, got '{}'", ttl);
  }
  if (!rows.empty()) {
    const auto [most, option] = cut_at_comma(rows);
    rules.most = parse_positive("--table-rows", most);
    rules.by_count = option == "by=lfu";
    if (!rules.by_count && option != "by=lru" && most.size() != rows.size())
      fail(ErrorKind::usage, "--table-rows: expected R or R,by=lru|lfu, got '{}'", rows);
  }
  if (rules.most > 0 && rules.most < kGroups)
    fail(ErrorKind::usage, "--table-rows {}: expected at least {}, one for each group of buckets", rows, kGroups);
  if (rules.most > 0 && rules.keep > rules.most)
    fail(ErrorKind::usage, "--table-ttl {}: keeps more rows than --table-rows {}", ttl, rows);
  return rules;
}

std::size_t share_of_group(std::size_t rows, std::size_t group) {
  return rows / kGroups + (group < rows % kGroups ? 1 : 0);
}

std::size_t choose_leaving(const RowRules& rules, std::uint64_t updates, std::size_t group, std::span<RowAge> rows) {
  std::ranges::sort(
      rows, [](const RowAge& a, const RowAge& b) { return a.last != b.last ? a.last < b.last : a.key < b.key; });
  const auto above = [&](std::size_t limit) {
    const std::size_t share = share_of_group(limit, group);
    return rows.size() > share ? rows.size() - share : 0;
  };
  std::size_t leaving = 0;
  if (rules.ttl > 0) {
    const auto old =
        std::ranges::partition_point(rows, [&](const RowAge& row) { return updates - row.last >= rules.ttl; });
    leaving = std::min<std::size_t>(static_cast<std::size_t>(old - rows.begin()), above(rules.keep));
  }
  const std::size_t excess = rules.most > 0 ? above(rules.most) : 0;
  if (excess <= leaving) return leaving;
  if (rules.by_count) std::ranges::stable_sort(rows.subspan(leaving), {}, &RowAge::count);
  return excess;
}

}  // namespace psring::optim
