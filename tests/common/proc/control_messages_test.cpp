#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/control/control_messages.h>

using namespace psring;
using namespace psring::net;

namespace {

/// One of each type, with something in every field.
std::vector<ControlMessage> samples() {
  using namespace control;
  const Member member{{Role::server, 1}, "host-a", "alpha", 4711, {{"tcp", "10.0.0.2:7001"}, {"shm", "/run/x"}}};
  return {Hello{Role::server,
                3,
                "host-a",
                "alpha",
                4711,
                1,
                {Role::server, 2},
                true,
                "cpu",
                false,
                {"psring 1", "12ab"},
                "7.7",
                4026531836},
          Hello{},
          Welcome{7, "{\"lr\": 0.1}", Nanoseconds{500}, Nanoseconds{3000}, 2, Nanoseconds{60}, true},
          Refused{ErrorKind::unauthorised, "no"},
          Ready{{{"tcp", "[::1]:80"}}, 2, 57, true},
          Members{{member, member}, 2, {Role::server, 1}},
          Heartbeat{Nanoseconds{-5}, 9},
          HeartbeatAck{Nanoseconds{123456789012}, 9, Nanoseconds{77}},
          StartRoles{{{Role::worker, 0}, {Role::server, 0}}},
          RoleExited{{Role::worker, 2}, 3, 9, "bad", 4711, true},
          Lost{{Role::worker, 2}, "gone"},
          Abort{ErrorKind::check_failed, "bytes differ", 2, {Role::worker, 1}},
          Failed{ErrorKind::bug, std::string(5000, 'x'), true},
          Report{"{}"},
          Append{"metrics.jsonl", std::vector<std::byte>(kMaxAppendBytes, std::byte{7}), 12},
          Progress{"50 %"},
          Done{968, 2},
          Finish{{15, 967, 968}},
          Bye{},
          Regroup{3, "worker 1 was ended"},
          Stuck{2, "worker 1 closed the link"},
          Resumed{3, 57},
          EndRoles{{{Role::worker, 0}}},
          Notice{"worker 1 was ended"},
          Interrupt{15, true},
          Pause{2, 15},
          Paused{2, 968, 15, 3},
          StopBefore{2, 968, 3},
          Status{"{}"},
          Wait{"server 0 has joined already"}};
}

/// Decodes, or throws protocol; nothing else.
void decode_or_refuse(std::span<const std::byte> bytes) {
  try {
    decode_control(bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::protocol && error.kind() != ErrorKind::data) throw;  // data: another version
  }
}

}  // namespace

TEST_CASE("every message survives the wire") {
  for (const ControlMessage& message : samples()) {
    const auto bytes = encode_control(message);
    const ControlMessage back = decode_control(bytes);
    CHECK(name_of(back) == name_of(message));
    CHECK(encode_control(back) == bytes);
  }
  const auto hello = std::get<control::Hello>(decode_control(encode_control(samples()[0])));
  CHECK(hello.role == Role::server);
  CHECK(hello.rank == 3U);
  CHECK(hello.hostname == "alpha");
  CHECK(hello.processor == "cpu");
  CHECK_FALSE(hello.asks);
  CHECK_FALSE(std::get<control::Hello>(decode_control(encode_control(control::Hello{}))).rank);
  const auto members = std::get<control::Members>(decode_control(encode_control(samples()[5])));
  REQUIRE(members.members.size() == 2);
  CHECK(members.members[1].addresses.at("tcp") == "10.0.0.2:7001");
  CHECK(to_string(members.members[1]) == "server 1 (alpha:4711)");
}

TEST_CASE("a message that is cut short or too long is a protocol error") {
  for (const ControlMessage& message : samples()) {
    auto bytes = encode_control(message);
    const std::size_t stride = bytes.size() / 500 + 1;
    for (std::size_t n = 0; n < bytes.size(); n += stride) {
      try {
        decode_control(std::span(bytes).first(n));
        FAIL(name_of(message) << " was decoded from " << n << " of " << bytes.size() << " bytes");
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::protocol);
      }
    }
    bytes.push_back(std::byte{0});
    CHECK_THROWS_WITH(decode_control(bytes), Catch::Contains("surplus"));
  }
}

TEST_CASE("claimed sizes are bounded before anything is allocated") {
  auto bytes = encode_control(control::Report{"abcd"});
  // version, type, cereal's byte order, then the size.
  for (const std::uint32_t claim : {0xFFFFFFFFU, static_cast<std::uint32_t>(kMaxTextBytes) + 1}) {
    std::memcpy(bytes.data() + 3, &claim, sizeof claim);
    CHECK_THROWS_WITH(decode_control(bytes), Catch::Contains("claims"));
  }
  const std::uint32_t claim = kMaxTextBytes;
  std::memcpy(bytes.data() + 3, &claim, sizeof claim);
  CHECK_THROWS_WITH(decode_control(bytes), Catch::Contains("cut short"));
  CHECK_THROWS_AS(decode_control(std::vector<std::byte>(kMaxControlBytes + 1)), Error);
  CHECK_THROWS_AS(encode_control(control::Report{std::string(kMaxTextBytes + 1, 'x')}), Error);
}

TEST_CASE("another version, unknown types and enumerators are refused") {
  auto bytes = encode_control(control::Done{});
  const std::byte version = std::exchange(bytes[0], std::byte{1});
  CHECK_THROWS_WITH(decode_control(bytes), Catch::Contains("version 1"));
  bytes[0] = version;
  bytes[1] = std::byte{200};
  CHECK_THROWS_WITH(decode_control(bytes), Catch::Contains("unknown type 200"));
  auto abort = encode_control(control::Abort{});
  abort[3] = std::byte{99};
  CHECK_THROWS_WITH(decode_control(abort), Catch::Contains("unknown kind of error 99"));
  auto hello = encode_control(control::Hello{});
  hello[11] = std::byte{4};  // behind the two empty texts of the build
  CHECK_THROWS_WITH(decode_control(hello), Catch::Contains("unknown role 4"));
}

TEST_CASE("builds of different wire versions tell each other so in one line") {
  auto hello = encode_control(control::Hello{.build = {"psring 9.9 (abc)", "1234"}});
  const int own = std::to_integer<int>(hello[0]);
  hello[0] = std::byte{99};
  hello.resize(hello.size() + 5);  // whatever follows the build
  try {
    decode_control(hello);
    FAIL("a hello of another version");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    CHECK_THAT(error.what(), Catch::Contains("wire version 99 (psring 9.9 (abc))") &&
                                 Catch::Contains(fmt::format("the receiver {} ({})", own, build_id().program)));
  }
  auto refused = encode_control(control::Refused{ErrorKind::data, "another build"});
  refused[0] = std::byte{99};
  CHECK(std::get<control::Refused>(decode_control(refused)).text == "another build");
  refused[0] = std::byte{6};  // whose messages may have another form
  CHECK_THROWS_WITH(decode_control(refused), Catch::Contains("wire version 6"));
}

TEST_CASE("noise never does worse than a protocol error") {
  const CounterRng rng({.seed = 5});
  std::uint64_t draw = 0;
  for (const ControlMessage& message : samples()) {
    const auto good = encode_control(message);
    const std::size_t head = std::min<std::size_t>(good.size(), 200);
    for (int i = 0; i < 500; ++i) {  // a few flipped bytes
      auto bad = std::vector<std::byte>(
          good.begin(), good.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(good.size(), 6000)));
      for (int flips = 0; flips < 3; ++flips) {
        const std::size_t at = rng.bits(draw++) % head;
        bad[at] = static_cast<std::byte>(rng.bits(draw++));
      }
      REQUIRE_NOTHROW(decode_or_refuse(bad));
    }
  }
  const std::byte version = encode_control(control::Done{})[0];
  for (int i = 0; i < 20000; ++i) {  // nothing but noise behind a good start
    std::vector<std::byte> bytes(2 + rng.bits(draw++) % 64);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.bits(draw++));
    bytes[0] = version;
    bytes[1] = static_cast<std::byte>(i % 23);
    REQUIRE_NOTHROW(decode_or_refuse(bytes));
  }
}

TEST_CASE("names of files stay in the run folder") {
  for (const char* good : {"metrics.jsonl", "logs/worker-0.log", "a/b/c/d", "A_1.x-y"}) CHECK(is_safe_file_name(good));
  for (const char* bad :
       {"", "/etc/passwd", "../x", "a/../x", "a//b", "a/", ".hidden", "a/.b", "a b", "a\nb", "a/b/c/d/e", "ä"})
    CHECK_FALSE(is_safe_file_name(bad));
  CHECK_FALSE(is_safe_file_name(std::string("a\0b", 3)));
  CHECK_FALSE(is_safe_file_name(std::string(300, 'a')));
}
