#include <algorithm>
#include <array>
#include <cctype>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <psring/view/live/access.h>

namespace psring::view {
namespace {

constexpr std::size_t kTokenBytes = 16;
constexpr std::string_view kBearer = "Bearer ";

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes;
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

}  // namespace

bool is_own_host(const std::string& host) {
  std::string name = host;
  if (const std::size_t colon = name.rfind(':'); colon != std::string::npos && name.back() != ']') {
    const std::string_view port = std::string_view(name).substr(colon + 1);
    if (!std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return false;
    name.resize(colon);
  }
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  return is_address(name) || name == "localhost" || (!name.empty() && name == own.data());
}

Access::Access() {
  std::array<unsigned char, kTokenBytes> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  for (const unsigned char byte : bytes) token_ += fmt::format("{:02x}", byte);
}

bool Access::has_token(const HttpRequest& request) const {
  const auto is_token = [&](std::string_view text) {
    return text.size() == token_.size() && sodium_memcmp(text.data(), token_.data(), token_.size()) == 0;
  };
  const std::string_view authorization = request.authorization;
  return is_token(request.token) ||
         (authorization.starts_with(kBearer) && is_token(authorization.substr(kBearer.size())));
}

std::optional<int> Access::refuse(const HttpRequest& request) const {
  if (!is_own_host(request.host)) return 403;
  if (!request.origin.empty() && request.origin != "http://" + request.host) return 403;
  if (request.method != "GET") return 405;
  if (request.has_body) return 413;
  if (!has_token(request)) return 403;
  return std::nullopt;
}

}  // namespace psring::view
