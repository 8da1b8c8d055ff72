#include <cstdlib>
#include <string_view>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/proc/environment.h>

namespace psring {

std::optional<std::string> master_endpoint() {
  const char* address = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (address == nullptr || port == nullptr) return std::nullopt;
  const bool is_ipv6 = std::string_view(address).find(':') != std::string_view::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", address, port) : fmt::format("{}:{}", address, port);
}

std::optional<std::uint32_t> environment_number(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  const auto number = read_number<std::uint32_t>(value);
  if (!number) fail(ErrorKind::usage, "{}={}: expected a whole number", name, value);
  return number;
}

}  // namespace psring
