#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <psring/optim/rows/row_figures.h>
#include <psring/optim/rows/row_hash.h>

namespace psring::optim {
namespace {

constexpr std::size_t kHotRows = 16;

/// True if row `a` has more updates; of equal rows the one whose hashed key is smaller comes first, as the numbers of
/// rows depend on the order of updates.
bool is_hotter(const RecordHeader& a, const RecordHeader& b) {
  return std::tie(b.updates, a.key) < std::tie(a.updates, b.key);
}

}  // namespace

Json row_figures(const TableLayout& table, const TableRows& rows) {
  const RecordMemory& records = rows.records();
  std::uint64_t updates = 0;
  std::vector<RecordHeader> hot;  // a heap, whose first row is the least hot
  for (std::uint32_t row = 0; row < records.used(); ++row) {
    if (records.is_free(row)) continue;
    const RecordHeader& header = records.header(row);
    updates += header.updates;
    if (hot.size() == kHotRows && !is_hotter(header, hot.front())) continue;
    if (hot.size() == kHotRows) {
      std::ranges::pop_heap(hot, is_hotter);
      hot.pop_back();
    }
    hot.push_back(header);
    std::ranges::push_heap(hot, is_hotter);
  }
  std::ranges::sort_heap(hot, is_hotter);
  Json list = Json::array();
  for (const RecordHeader& header : hot)
    list.push_back({{"key", fmt::format("{:#018x}", unmix64(header.key))}, {"updates", header.updates}});
  return {{"name", table.name}, {"rows", rows.size()}, {"updates", updates}, {"hot", std::move(list)}};
}

}  // namespace psring::optim
