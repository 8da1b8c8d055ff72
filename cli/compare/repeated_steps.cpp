#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <psring/cli/compare/repeated_steps.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {

std::uint64_t drop_repeated_steps(const std::filesystem::path& metrics, bool by_all) {
  using Membership = std::uint64_t;
  std::vector<std::string> lines;
  using Key = std::tuple<std::optional<std::uint64_t>, std::uint64_t, bool>;  ///< worker, step, is an evaluation
  std::map<Key, std::pair<Membership, std::vector<std::size_t>>> last;
  LineReader reader(metrics.string(), LineReader::IfMissing::no_lines);
  for (std::string line; reader.next(line); lines.push_back(line)) {
    const Json entry = Json::parse(line);
    const auto worker = by_all ? std::nullopt : std::optional(entry.at("worker").get<std::uint64_t>());
    auto& [membership, at] = last[{worker, entry.at("step").get<std::uint64_t>(), entry.contains("test_rows")}];
    const auto line_membership = entry.value("membership", Membership{0});
    if (line_membership > membership) at.clear();
    if (line_membership >= membership) at.push_back(lines.size());
    membership = std::max(membership, line_membership);
  }
  std::set<std::size_t> kept;
  std::uint64_t first = last.empty() ? 0 : std::numeric_limits<std::uint64_t>::max();
  for (const auto& [key, found] : last) first = std::min(first, std::get<1>(key));
  for (const auto& [key, found] : last) kept.insert(found.second.begin(), found.second.end());
  std::ofstream out(metrics);
  for (const std::size_t at : kept) out << lines[at] << "\n";
  flush(out, metrics.string());
  return first;
}

}  // namespace psring::cli
