#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include <psring/server/answers.h>

namespace psring::server {

net::FrameHeader answer_to(const net::FrameHeader& asked, net::FrameType type) {
  net::FrameHeader header;
  header.type = type;
  header.unit = asked.unit;
  header.set_range(asked.range());
  header.step = asked.step;
  header.dest = asked.dest;
  header.flags = asked.flags & net::FrameHeader::kStartUp;
  return header;
}

void set_staleness(const Staleness& gradient, net::FrameHeader& answer) {
  const auto bounded = [](std::uint64_t value) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
  };
  answer.staleness = bounded(gradient.staleness);
  answer.lag = bounded(gradient.lag);
}

net::Outgoing failed(const net::FrameHeader& asked, const Error& error) {
  constexpr std::size_t kMost = 1024;
  const auto text = std::make_shared<const std::string>(
      std::string_view(error.what()).substr(0, kMost));  // shared: the frame's holder
  net::FrameHeader header = answer_to(asked, net::FrameType::failed);
  header.version = static_cast<std::uint64_t>(exit_status(error.kind()));
  return {asked.sender(), header, std::as_bytes(std::span(*text)), text};
}

}  // namespace psring::server
