#include <charconv>
#include <system_error>

#include <psring/common/base/text/peer_name.h>

namespace psring {

std::string PeerName::text() const {
  std::string text(role);
  return rank == kNoRank ? text : text.append(" ").append(std::to_string(rank));
}

PeerName parse_peer_name(std::string_view text) {
  const PeerName whole{text};
  const std::size_t space = text.rfind(' ');
  if (space == std::string_view::npos) return whole;
  PeerName name{text.substr(0, space), 0};
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data() + space + 1, end, name.rank).ec != std::errc()) return whole;
  return name.text() == text ? name : whole;
}

}  // namespace psring
