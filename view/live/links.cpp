#include <algorithm>
#include <vector>

#include <psring/view/live/links.h>

namespace psring::view {
namespace {

constexpr std::size_t kMostKept = 16384;
constexpr const char* kRetransmitted = "retransmitted";

}  // namespace

void LiveLinks::update(const std::string& from, double time_s, const Json& sent) {
  known_ = true;
  const auto [time, is_first] = times_.try_emplace(from, time_s);
  const double passed = time_s - time->second;
  time->second = time_s;
  for (const Json& entry : sent) {
    const Key key(from, entry[1].get<std::string>(), entry[0].get<std::string>());
    if (links_.size() >= kMostKept && !links_.contains(key)) continue;
    Link& link = links_[key];
    const std::uint64_t before = link.bytes.total();
    link.messages.set(entry[2].get<std::uint64_t>());
    link.bytes.set(entry[3].get<std::uint64_t>());
    if (!is_first && passed > 0) link.bytes_per_second = static_cast<double>(link.bytes.total() - before) / passed;
  }
}

Json LiveLinks::json() const {
  if (!known_) return {};
  std::vector<const std::pair<const Key, Link>*> order;
  for (const auto& entry : links_) order.push_back(&entry);
  if (order.size() > kMost) {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->second.bytes.total() > b->second.bytes.total(); });
    order.resize(kMost);
  }
  Json list = Json::array();
  for (const auto* entry : order) {
    const auto& [from, to, operation] = entry->first;
    const Link& link = entry->second;
    list.push_back({{"from", from},
                    {"to", to},
                    {"operation", operation},
                    {"bytes", link.bytes.total()},
                    {"bytes_per_second", link.bytes_per_second},
                    {"retransmissions", operation == kRetransmitted ? Json(link.messages.total()) : Json()}});
  }
  return list;
}

}  // namespace psring::view
