#include <algorithm>

#include <catch2/catch.hpp>

#include <psring/common/device/arena.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>
#include <psring/worker/servers/client_protocol.h>

using namespace psring;
using namespace psring::net;
using test::error_of;
using worker::ClientProtocol;

namespace {

using Frames = ClientProtocol::Frames;

/// A server's answer to a frame; by default the version that the frame asks for.
Message answer(const Outgoing& asked, FrameType type, std::uint64_t version = 0,
               std::span<const std::byte> payload = {}) {
  Message message;
  message.header = asked.header;
  message.header.type = type;
  message.header.version = version;
  message.header.sender_role = Role::server;
  message.header.sender_rank = asked.to.rank;
  message.payload = payload;
  return message;
}

void open(ClientProtocol& client) {
  Frames frames;
  client.open(3, false, frames);
  for (const Outgoing& frame : frames) client.on_message(answer(frame, FrameType::layout_ok));
}

}  // namespace

TEST_CASE("a client is open once every server has taken its layout") {
  ClientProtocol client(test::small_layout(3), nullptr);
  Frames frames;
  CHECK_FALSE(client.opened());
  CHECK_THAT(error_of(ErrorKind::protocol,
                      [&] {
                        client.on_message(answer({{Role::server, 0}, {}, {}}, FrameType::layout_ok));
                      }),
             Catch::Contains("server 0"));
  client.open(3, true, frames);
  REQUIRE(frames.size() == 3);
  for (std::uint32_t server = 0; server < 3; ++server) {
    CHECK(frames[server].to == Peer{Role::server, server});
    CHECK(frames[server].header.flags == FrameHeader::kStartUp);
    const LayoutMessage sent = decode_layout(frames[server].payload);
    CHECK(sent.seed == 3);
    CHECK(sent.initial_by_worker);
    CHECK(sent.layout.elements() == client.layout().elements());
  }
  client.on_message(answer(frames[2], FrameType::layout_ok));
  client.on_message(answer(frames[0], FrameType::layout_ok));
  error_of(ErrorKind::protocol, [&] { client.on_message(answer(frames[0], FrameType::layout_ok)); });  // twice
  CHECK_FALSE(client.opened());
  client.on_message(answer(frames[1], FrameType::layout_ok));
  CHECK(client.opened());
}

TEST_CASE("a client goes on at the least version of all servers, with the loss scale of one that is there") {
  ClientProtocol client(test::small_layout(3), nullptr);
  Frames frames;
  client.open(3, false, frames);
  error_of(ErrorKind::bug, [&] { client.version(); });
  const std::byte scales[] = {std::byte{8}, std::byte{7}, std::byte{9}};
  const std::uint64_t versions[] = {8, 7, 8};
  for (std::size_t server = 0; server < 3; ++server)
    client.on_message(
        answer(frames[server], FrameType::layout_ok, versions[server], std::span(scales).subspan(server, 1)));
  CHECK(client.version() == 7);
  REQUIRE(client.loss_scale().size() == 1);
  CHECK(client.loss_scale()[0] == std::byte{7});
}

TEST_CASE("workers begin with different servers") {
  ClientProtocol client(test::small_layout(3), nullptr, 4);
  open(client);
  const std::vector<float> gradient(client.layout().units[0].elements);
  Frames frames;
  client.push(0, 0, 0, gradient, frames);
  REQUIRE(frames.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(frames[i].to == Peer{Role::server, (1 + i) % 3});
}

TEST_CASE("a unit is pushed and pulled in its pieces, each from and to its place") {
  const Layout layout = make_layout({{"small", {{{"a", {100}, {}}, 0}}}, {"large", {{{"b", {700'000}, {}}, 1}}}}, 2);
  Arena arena(std::size_t{16} << 20);
  const auto floats = [&](std::size_t size) {
    const auto bytes = arena.allocate(size * sizeof(float));
    return std::span(reinterpret_cast<float*>(bytes.data()), size);
  };
  const std::span<float> gradient = floats(layout.units[1].elements);
  const std::span<float> into = floats(layout.units[1].elements);
  ClientProtocol client(layout, [&](const void* at) { return arena.mark(at); });
  open(client);
  Frames frames;
  client.push_pull(1, 4, gradient, into, frames);
  REQUIRE(frames.size() == 4);  // each owner's 350,208 elements in two
  // By turns to both owners.
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(frames[i].to == Peer{Role::server, i % 2});
  std::vector<Outgoing> sorted = frames;
  std::ranges::sort(sorted, {}, [](const Outgoing& frame) { return frame.header.begin; });
  std::size_t at = 0;
  for (const Outgoing& frame : sorted) {
    const Range range = frame.header.range();
    CHECK(frame.header.type == FrameType::push_pull);
    CHECK(frame.header.step == 4);
    CHECK(frame.header.version == 5);
    CHECK(frame.header.unit == 1);
    CHECK(range.begin == at);
    CHECK(range.size() <= kPieceElements);
    CHECK(layout.partition(1).range(frame.to.rank).contains(range));
    CHECK(frame.payload.data() == reinterpret_cast<const std::byte*>(gradient.data() + at));
    CHECK(frame.payload.size() == range.size() * sizeof(float));
    CHECK(frame.header.dest == arena.mark(into.data() + at));
    at = range.end;
  }
  CHECK(at == layout.units[1].elements);
  CHECK_FALSE(client.has(1, 0));
  // One answer is there already, the others are copied to their places.
  for (std::size_t i = frames.size(); i-- > 0;) {
    const Range range = frames[i].header.range();
    const std::vector<float> values(range.size(), static_cast<float>(i + 1));
    const std::span<float> place = into.subspan(range.begin, range.size());
    if (i == 2) std::ranges::copy(values, place.begin());
    CHECK_FALSE(client.has(1, 5));
    client.on_message(
        answer(frames[i], FrameType::values, 5, i == 2 ? std::as_bytes(place) : std::as_bytes(std::span(values))));
  }
  CHECK(client.has(1, 5));
  CHECK_FALSE(client.has(1, 6));
  for (std::size_t i = 0; i < frames.size(); ++i) {
    CHECK(into[frames[i].header.begin] == static_cast<float>(i + 1));
    CHECK(into[frames[i].header.end - 1] == static_cast<float>(i + 1));
  }
}

TEST_CASE("pushes are counted until every piece is acknowledged") {
  const Layout layout = test::small_layout(2);
  const std::vector<float> gradient(layout.units[0].elements);
  ClientProtocol client(layout, nullptr);
  open(client);
  Frames frames;
  CHECK(client.acknowledged(0));
  client.push(0, 0, 0, gradient, frames);
  REQUIRE(frames.size() == 2);
  for (const Outgoing& frame : frames) CHECK((frame.header.flags & FrameHeader::kWantAck) != 0);
  client.on_message(answer(frames[0], FrameType::push_ack));
  CHECK_FALSE(client.acknowledged(0));
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { client.on_message(answer(frames[0], FrameType::push_ack)); }),
             Catch::Contains("was not made"));
  client.push(0, 1, 0, gradient, frames);  // two on their way
  client.on_message(answer(frames[1], FrameType::push_ack));
  client.on_message(answer(frames[1], FrameType::push_ack));
  client.on_message(answer(frames[0], FrameType::push_ack));
  CHECK(client.acknowledged(0));
}

TEST_CASE("initial values go to their owners, as control") {
  const Layout layout = test::small_layout(3);
  const std::vector<float> values = test::normal_values(layout.units[1].elements, 1);
  ClientProtocol client(layout, nullptr);
  open(client);
  Frames frames;
  client.initial(1, values, frames);
  REQUIRE(frames.size() == 3);
  for (std::uint32_t server = 0; server < 3; ++server) {
    CHECK(frames[server].to == Peer{Role::server, server});
    CHECK(frames[server].header.type == FrameType::initial);
    CHECK(frames[server].header.flags == FrameHeader::kStartUp);
    CHECK(frames[server].header.range() == layout.partition(1).range(server));
  }
}

TEST_CASE("what was not asked for is refused, and nothing is written") {
  const Layout layout = test::small_layout(2);
  std::vector<float> into(layout.units[0].elements, -1.0F);
  ClientProtocol client(layout, nullptr);
  open(client);
  Frames frames;
  client.pull(0, 2, into, false, frames);
  const std::vector<float> values(layout.units[0].elements, 5.0F);
  const auto bytes = std::as_bytes(std::span(values)).first(frames[0].header.range().size() * sizeof(float));
  const Message right = answer(frames[0], FrameType::values, 2, bytes);
  const auto refused = [&](const char* says, auto&& spoil) {
    Message message = right;
    spoil(message);
    CHECK_THAT(error_of(ErrorKind::protocol, [&] { client.on_message(message); }), Catch::Contains(says));
  };
  refused("not asked for", [](Message& m) { m.header.version = 1; });
  refused("not asked for", [](Message& m) { m.payload = m.payload.first(8); });
  refused("not asked for", [](Message& m) { m.header.dtype = DType::f16; });
  refused("does not own", [](Message& m) { m.header.sender_rank = 1; });
  refused("does not own", [](Message& m) { m.header.unit = 9; });
  refused("does not own", [](Message& m) { m.header.end -= 256; });
  refused("does not own", [](Message& m) { m.header.begin = m.header.end = UINT64_MAX; });
  refused("worker 0", [](Message& m) { m.header.sender_role = Role::worker; });
  refused("verdict", [](Message& m) { m.header.type = FrameType::verdict; });
  refused("server 0: out of luck", [](Message& m) {
    static constexpr std::string_view kText = "out of luck";
    m.header.type = FrameType::failed;
    m.payload = std::as_bytes(std::span(kText));
  });
  CHECK(std::ranges::all_of(into, [](float value) { return value == -1.0F; }));
  client.on_message(right);
  refused("not asked for", [](Message&) {});                                  // a second time
  CHECK_FALSE(client.has(0, 2));                                              // the other server's piece is missing
  error_of(ErrorKind::bug, [&] { client.pull(0, 2, into, false, frames); });  // twice at once
}

TEST_CASE("a version is saved once every server says so") {
  ClientProtocol client(test::small_layout(3), nullptr);
  open(client);
  CHECK(client.saved());
  Frames frames;
  client.save(7, 2, frames);
  REQUIRE(frames.size() == 3);
  for (std::uint32_t server = 0; server < 3; ++server) {
    CHECK(frames[server].to == Peer{Role::server, server});
    CHECK(frames[server].header.type == FrameType::save);
    CHECK(frames[server].header.step == 7);
    CHECK(frames[server].header.version == 2);
    CHECK_FALSE(client.saved());
    client.on_message(answer(frames[server], FrameType::saved));
  }
  CHECK(client.saved());
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { client.on_message(answer(frames[1], FrameType::saved)); }),
             Catch::Contains("server 1"));
  frames.clear();
  client.written(8, frames);
  REQUIRE(frames.size() == 3);
  CHECK(frames[2].to == Peer{Role::server, 2});
  CHECK(frames[2].header.type == FrameType::saved);
  CHECK(frames[2].header.step == 8);
  CHECK(client.saved());  // no answer is waited for
}
