#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>

using namespace psring;
using namespace psring::net;
using Catch::Contains;

namespace {

std::string resolved(const std::string& text, std::uint16_t least_port = 1) {
  return to_string(resolve_endpoint("--at", text, least_port));
}

}  // namespace

TEST_CASE("an endpoint is a host, in digits or by name, and a port") {
  CHECK(resolved("10.1.2.3:7000") == "10.1.2.3:7000");
  CHECK(resolved("127.0.0.1:65535") == "127.0.0.1:65535");
  CHECK(resolved("127.0.0.1:0", 0) == "127.0.0.1:0");
  CHECK(resolved("[::1]:7000") == "[::1]:7000");
  CHECK(resolve_endpoint("--at", "[fe80::1]:7").host == "fe80::1");
  CHECK(is_loopback(resolve_endpoint("--at", "localhost:7")));
  CHECK(is_loopback(resolve_endpoint("--at", "[0:0::1]:7")));
  CHECK_FALSE(is_loopback(resolve_endpoint("--at", "0.0.0.0:7")));
  CHECK_FALSE(is_loopback(resolve_endpoint("--at", "[::]:7")));
  CHECK(is_any_address(resolve_endpoint("--at", "0.0.0.0:7")));
  CHECK(is_any_address(resolve_endpoint("--at", "[::]:7")));
  CHECK_FALSE(is_any_address(resolve_endpoint("--at", "127.0.0.1:7")));
}

TEST_CASE("what is no endpoint says what was expected") {
  for (const char* text :
       {"", "host", ":7", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:99999999999999999999",
        "127.0.0.1:-1", "127.0.0.1:7x", "::1:7", "[]:7", "[::1]"}) {
    INFO(text);
    try {
      resolved(text);
      FAIL("taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK_THAT(error.what(), Contains(fmt::format("--at {}: expected HOST:PORT", text)) && Contains("1 to 65535"));
    }
  }
  CHECK_THROWS_WITH(resolved("nobody.invalid:7"), Contains("cannot resolve nobody.invalid") && Contains("HOST:PORT"));
}

TEST_CASE("what is bound is an address of this host") {
  CHECK(bind_address("127.0.0.1") == "127.0.0.1");
  CHECK(bind_address("lo") == "127.0.0.1");
  CHECK(bind_address("127.0.0.0/8") == "127.0.0.1");
  CHECK(address_towards("127.0.0.1") == "127.0.0.1");
  for (const char* text : {"240.1.2.3", "2001:db8::1", "banana", "240.1.2.0/24", ""})
    CHECK_THROWS_WITH(bind_address(text), Contains("--bind"));
}

TEST_CASE("interfaces and networks of IPv6 are bound, too") {
  if (loopback_address() != "127.0.0.1" || interface_of("::1").empty()) return;  // a host without one of the two
  CHECK(bind_address("::1") == "::1");
  CHECK(bind_address("::1/128") == "::1");
  CHECK(bind_address("::/64") == "::1");
  CHECK(interface_of("::1") == "lo");
  for (const char* text : {"::1/129", "2001:db8::/32", "::1/x", "127.0.0.0/33"})
    CHECK_THROWS_WITH(bind_address(text), Contains("--bind"));
}
