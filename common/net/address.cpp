#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/net/address.h>

namespace psring::net {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// The bytes of an address in digits; empty if the text is none.
Bytes bytes_of(const std::string& text) {
  for (const auto& [family, size] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    Bytes bytes(static_cast<std::size_t>(size));
    if (::inet_pton(family, text.c_str(), bytes.data()) == 1) return bytes;
  }
  return {};
}

Bytes bytes_of(const sockaddr& address) {
  const bool is_ipv6 = address.sa_family == AF_INET6;
  const auto* begin =
      is_ipv6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr
              : reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return {begin, begin + (is_ipv6 ? 16 : 4)};
}

std::string digits_of(const sockaddr& address) {
  const socklen_t bytes = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(&address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text;
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) fail(ErrorKind::data, "cannot list the interfaces: {}", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<LocalAddress> all;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6)
      all.push_back({at->ifa_name, bytes_of(*at->ifa_addr), digits_of(*at->ifa_addr), (at->ifa_flags & IFF_UP) != 0});
  }
  const auto order = [](const LocalAddress& address) {
    return std::pair(address.is_link_local(), address.bytes.size());
  };
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  return all;
}

namespace {

/// Returns the first address of this host for which `fits(address)` holds.
template <class Fits>
std::optional<std::string> find_local(Fits&& fits) {
  for (const LocalAddress& address : local_addresses())
    if (fits(address)) return address.text;
  return std::nullopt;
}

bool have_equal_beginning(const Bytes& a, const Bytes& b, unsigned bits) {
  for (unsigned bit = 0; bit < bits; ++bit)
    if (((a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  return true;
}

std::optional<std::string> in_network(std::string_view text, std::size_t slash) {
  const Bytes network = bytes_of(std::string(text.substr(0, slash)));
  const std::string_view digits = text.substr(slash + 1);
  const auto bits = read_number<unsigned>(digits);
  if (network.empty() || !bits || *bits > 8 * network.size()) return std::nullopt;
  return find_local([&](const LocalAddress& address) {
    return address.bytes.size() == network.size() && have_equal_beginning(address.bytes, network, *bits);
  });
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

bool is_any_address(const Endpoint& endpoint) { return endpoint.host == "0.0.0.0" || endpoint.host == "::"; }

bool is_loopback(const Endpoint& endpoint) { return endpoint.host.starts_with("127.") || endpoint.host == "::1"; }

Endpoint resolve_endpoint(std::string_view flag, const std::string& text, std::uint16_t least_port) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string_view digits = std::string_view(text).substr(colon == std::string::npos ? text.size() : colon + 1);
  const auto port = read_number<std::uint16_t>(digits);
  if (host.empty() || (!bracketed && host.find(':') != std::string::npos) || !port || *port < least_port)
    fail(ErrorKind::usage, "{} {}: expected HOST:PORT, or [ADDRESS]:PORT for IPv6, with a port from {} to 65535", flag,
         text, least_port);
  int error = 0;
  const auto address = digits_of(host, error);
  if (!address)
    fail(ErrorKind::usage, "{} {}: cannot resolve {}: {}; expected HOST:PORT", flag, text, host, ::gai_strerror(error));
  return {*address, *port};
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
  const Bytes bytes = bytes_of(text);
  std::optional<std::string> found;
  if (!bytes.empty())
    found = find_local([&](const LocalAddress& address) { return address.bytes == bytes; });
  else if (const std::size_t slash = text.find('/'); slash != std::string::npos)
    found = in_network(text, slash);
  else
    found = find_local([&](const LocalAddress& address) { return address.interface == text; });
  if (!found)
    fail(ErrorKind::usage,
         "--bind {}: expected an address, an interface or a network (CIDR) of this host, IPv4 or IPv6", text);
  return bytes.empty() ? *found : text;
}

std::string loopback_address() {
  const auto has = [](const char* wanted) {
    return find_local([&](const LocalAddress& address) { return address.text == wanted; }).has_value();
  };
  try {
    return !has("127.0.0.1") && has("::1") ? "::1" : "127.0.0.1";
  } catch (const Error&) {
    return "127.0.0.1";  // no descriptor is left for the question; the next listener reports that
  }
}

std::string interface_of(const std::string& address) {
  // All of 127.0.0.0/8 belongs to the loopback interface.
  const std::string wanted = address.starts_with("127.") ? "127.0.0.1" : address;
  for (const LocalAddress& local : local_addresses())
    if (local.text == wanted) return local.interface;
  return "";
}

}  // namespace psring::net
