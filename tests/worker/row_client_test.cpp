#include <deque>

#include <catch2/catch.hpp>

#include <psring/common/base/consistency.h>
#include <psring/tests/support/hand_clock.h>
#include <psring/tests/support/values.h>
#include <psring/worker/tables/row_client.h>

using namespace psring;
using namespace psring::worker;
using namespace std::chrono_literals;
using Catch::Contains;
using test::error_of;

namespace {

/// A link to servers that say what the test has put into it; while it waits, the clock goes on.
class Link final : public net::Transport {
 public:
  explicit Link(const test::HandClock& clock) : clock_(clock) {}
  void send(net::Peer /*to*/, net::FrameHeader header, std::span<const std::byte> /*payload*/) override {
    sent.push_back(header);
  }
  std::optional<net::Message> receive(Moment deadline) override {
    if (arriving.empty()) {
      clock_.sleep_until(deadline);
      return std::nullopt;
    }
    const net::FrameHeader header = arriving.front();
    arriving.pop_front();
    return net::Message{.header = header, .payload = {}, .reply_space = {}, .holder = nullptr};
  }
  std::size_t in_flight_bytes(net::Peer /*peer*/) const override { return 0; }
  std::string describe(net::Peer /*peer*/) const override { return "test"; }
  void wake() override {}

  std::vector<net::FrameHeader> sent;
  std::deque<net::FrameHeader> arriving;

 private:
  const test::HandClock& clock_;
};

struct Scene {
  test::HandClock clock;
  Link link{clock};
  Layout layout;
  std::optional<PsClient> client;

  Scene() {
    layout.tables.push_back({.name = "ads", .width = 2, .init = {}, .most_keys = 8, .most_bags = 8});
    client.emplace(link, clock, layout, PsClient::Options{.mark = {}, .check = {}, .op_timeout = 1s});
  }
  /// Lets the server answer the first frame that was sent.
  void answer(net::FrameType type, std::uint32_t staleness = 0) {
    net::FrameHeader header = link.sent.front();
    header.type = type;
    header.sender_role = net::Role::server;
    header.staleness = staleness;
    link.arriving.push_back(header);
  }
};

}  // namespace

TEST_CASE("who waits for rows in vain is told their table and step") {
  Scene scene;
  RowClient rows(*scene.client);
  const std::vector<std::uint64_t> keys{1};
  std::vector<float> values(2);
  rows.pull(0, {.keys = keys}, 7, values, RowUse::train);
  CHECK_THAT(error_of(ErrorKind::timeout, [&] { rows.wait(0, 7, RowUse::train); }), Contains("rows of 'ads', step 7"));
  rows.pull(0, {.keys = keys}, kFinalVersion, values, RowUse::read);
  CHECK_THAT(error_of(ErrorKind::timeout, [&] { rows.wait(0, kFinalVersion, RowUse::read); }),
             Contains("the final rows of 'ads'"));
}

TEST_CASE("frames of rows are the row client's, as long as there is one; their staleness counts") {
  Scene scene;
  std::optional<RowClient> rows(std::in_place, *scene.client);
  const std::vector<std::uint64_t> keys{};
  rows->pull(0, {.keys = keys}, 7, {}, RowUse::train);
  scene.answer(net::FrameType::rows);
  rows->wait(0, 7, RowUse::train);
  rows->push(0, 7, {}, net::Encoding::dense);
  scene.answer(net::FrameType::rows_ack, 3);
  rows->wait_acknowledged(0);
  CHECK(scene.client->take_staleness() == 3);
  CHECK(scene.client->take_staleness() == 0);

  rows.reset();
  scene.answer(net::FrameType::rows);
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { scene.client->progress(); }), Contains("sent a rows frame"));
}
