#include <array>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/net/sim/in_process.h>
#include <psring/ring/link/group.h>
#include <psring/ring/plan/tuning.h>

using namespace psring;
using namespace psring::ring;

namespace {

/// Delivers frames at once, but counts their bytes as in flight until the test lets them leave.
class SlowTransport final : public net::Transport {
 public:
  SlowTransport(std::unique_ptr<net::Transport> inner, bool in_order) : inner_(std::move(inner)), in_order_(in_order) {}

  void let_leave(std::size_t bytes) { in_flight_ -= bytes; }

  void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> payload) override {
    inner_->send(to, header, payload);
    in_flight_ += payload.size();
  }
  std::optional<net::Message> receive(Moment deadline) override { return inner_->receive(deadline); }
  std::size_t in_flight_bytes(net::Peer /*peer*/) const override { return in_flight_; }
  bool leaves_in_order(net::Peer /*peer*/) const override { return in_order_; }
  std::string describe(net::Peer peer) const override { return inner_->describe(peer); }
  void wake() override { inner_->wake(); }

 private:
  const std::unique_ptr<net::Transport> inner_;
  const bool in_order_;
  std::size_t in_flight_ = 0;
};

/// Two ranks, of which rank 0 sends over a slow transport.
struct SlowPair {
  explicit SlowPair(bool in_order) {
    LinkOptions options;
    options.tuning = Tuning::built_in();
    for (std::uint32_t r = 0; r < 2; ++r) {
      auto endpoint = network.endpoint({net::Role::worker, r}, ledgers[r]);
      transports.push_back(std::make_unique<SlowTransport>(std::move(endpoint), in_order));
      groups.push_back(make_link_group(*transports[r], r, 2, options));
    }
  }

  net::InProcessNetwork network{1};
  std::array<ByteLedger, 2> ledgers;
  std::vector<std::unique_ptr<SlowTransport>> transports;
  std::vector<std::unique_ptr<InnerGroup>> groups;
};

}  // namespace

TEST_CASE("an operation does not wait for the bytes of a later one") {
  const bool in_order = GENERATE(true, false);
  CAPTURE(in_order);
  SlowPair pair(in_order);
  std::vector<float> first(256, 1);
  std::vector<float> second(1024, 2);
  Work small = pair.groups[0]->send(ConstVector(std::span<const float>(first)), 1);
  Work large = pair.groups[0]->send(ConstVector(std::span<const float>(second)), 1);
  CHECK_FALSE(small.done());
  pair.transports[0]->let_leave(512);  // half of the first message
  CHECK_FALSE(small.done());
  pair.transports[0]->let_leave(512);
  CHECK(small.done() == in_order);
  CHECK_FALSE(large.done());
  pair.transports[0]->let_leave(4096);
  CHECK(small.done());
  CHECK(large.done());
}
