#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <psring/common/base/error.h>
#include <psring/common/base/fd.h>
#include <psring/common/net/address.h>

namespace psring::net {
namespace {

std::optional<std::uint32_t> ipv4(const std::string& text) {
  in_addr address{};
  if (::inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
  return ntohl(address.s_addr);
}

std::string to_text(std::uint32_t address) {
  const in_addr raw{htonl(address)};
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &raw, text, sizeof text);
  return text;
}

/// Returns the first IPv4 address of this host for which `fits(interface, address)` holds.
template <class Fits>
std::optional<std::string> find_local(Fits&& fits) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail(ErrorKind::data, "cannot list the interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    const std::uint32_t address = ntohl(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr);
    if (fits(std::string_view(at->ifa_name), address)) return to_text(address);
  }
  return std::nullopt;
}

std::optional<std::string> in_network(std::string_view text, std::size_t slash) {
  const auto network = ipv4(std::string(text.substr(0, slash)));
  const std::string_view digits = text.substr(slash + 1);
  unsigned bits = 33;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
  if (!network || error != std::errc{} || end != digits.data() + digits.size() || bits > 32) return std::nullopt;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return find_local([&](std::string_view, std::uint32_t address) { return (address & mask) == (*network & mask); });
}

bool is_own_ipv6(const in6_addr& wanted) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail(ErrorKind::data, "cannot list the interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET6) continue;
    const in6_addr& own = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
    if (std::memcmp(&own, &wanted, sizeof own) == 0) return true;
  }
  return false;
}

std::string digits_of(const sockaddr& address) {
  const socklen_t bytes = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(&address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

/// Returns the numeric address of a host; if there is none, returns nothing and sets `error` to getaddrinfo's error.
std::optional<std::string> digits_of(const std::string& host, int& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  if (chosen == nullptr) chosen = found;
  char text[NI_MAXHOST] = {};
  error = ::getnameinfo(chosen->ai_addr, chosen->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  if (error != 0) return std::nullopt;
  return text;
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool is_ipv6 = endpoint.host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", endpoint.host, endpoint.port)
                 : fmt::format("{}:{}", endpoint.host, endpoint.port);
}

bool is_loopback(const Endpoint& endpoint) { return endpoint.host.starts_with("127.") || endpoint.host == "::1"; }

Endpoint resolve_endpoint(std::string_view flag, const std::string& text, std::uint16_t least_port) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view digits = std::string_view(text).substr(colon == std::string::npos ? text.size() : colon + 1);
  unsigned port = 0;
  const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || (!bracketed && host.find(':') != std::string::npos) || wrong != std::errc{} ||
      end != digits.data() + digits.size() || port < least_port || port > 65535)
    fail(ErrorKind::usage, "{} {}: expected HOST:PORT, or [ADDRESS]:PORT for IPv6, with a port from {} to 65535", flag,
         text, least_port);
  int error = 0;
  const auto address = digits_of(host, error);
  if (!address)
    fail(ErrorKind::usage, "{} {}: cannot resolve {}: {}; expected HOST:PORT", flag, text, host, ::gai_strerror(error));
  return {*address, static_cast<std::uint16_t>(port)};
}

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "9", &hints, &found); error != 0)
    fail(ErrorKind::data, "{}: {}", host, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  // Connecting a datagram socket sends nothing: the kernel only looks up the route.
  const Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  char text[NI_MAXHOST] = {};
  if (!socket || ::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &size) != 0)
    fail(ErrorKind::data, "no route to {}: {}", host, std::strerror(errno));
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
    fail(ErrorKind::data, "no route to {}", host);
  return text;
}

std::string bind_address(const std::string& text) {
  in6_addr ipv6{};
  if (::inet_pton(AF_INET6, text.c_str(), &ipv6) == 1) {
    if (is_own_ipv6(ipv6)) return text;
  } else if (const auto address = ipv4(text)) {
    if (find_local([&](std::string_view, std::uint32_t local) { return local == *address; })) return text;
  } else if (const std::size_t slash = text.find('/'); slash != std::string::npos) {
    if (const auto found = in_network(text, slash)) return *found;
  } else if (const auto found = find_local([&](std::string_view name, std::uint32_t) { return name == text; })) {
    return *found;
  }
  fail(ErrorKind::usage, "--bind {}: expected an address, an interface or a network of this host", text);
}

std::string interface_of(const std::string& address) {
  // All of 127.0.0.0/8 belongs to the loopback interface.
  const std::string wanted = address.starts_with("127.") ? "127.0.0.1" : address;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail(ErrorKind::data, "cannot list the interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if ((family == AF_INET || family == AF_INET6) && digits_of(*at->ifa_addr) == wanted) return at->ifa_name;
  }
  return "";
}

}  // namespace psring::net
