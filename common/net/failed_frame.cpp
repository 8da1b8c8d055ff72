#include <string_view>

#include <psring/common/net/failed_frame.h>

namespace psring::net {

Error error_of(const Message& failed) {
  const bool is_data = failed.header.version == static_cast<std::uint64_t>(exit_status(ErrorKind::data));
  const std::string_view line(reinterpret_cast<const char*>(failed.payload.data()), failed.payload.size());
  return Error(is_data ? ErrorKind::data : ErrorKind::protocol,
               fmt::format("{}: {}", to_string(failed.header.sender()), line));
}

}  // namespace psring::net
