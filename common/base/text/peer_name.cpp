#include <psring/common/base/text/peer_name.h>

namespace psring {

std::string PeerName::text() const {
  std::string text(role);
  return rank == kNoRank ? text : text.append(" ").append(std::to_string(rank));
}

}  // namespace psring
