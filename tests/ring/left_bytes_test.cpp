#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/ring/link/group.h>
#include <psring/ring/plan/tuning.h>
#include <psring/tests/support/in_process_network.h>

using namespace psring;
using namespace psring::ring;

namespace {

/// Stands still.
class StoppedClock final : public Clock {
 public:
  Moment now() const override { return Moment(std::chrono::seconds(1)); }
  void sleep_until(Moment /*moment*/) const override {}
};

/// Delivers frames at once, but counts their bytes as in flight until the test lets them leave.
class SlowTransport final : public net::Transport {
 public:
  SlowTransport(std::unique_ptr<net::Transport> inner, bool in_order) : inner_(std::move(inner)), in_order_(in_order) {}

  void let_leave(std::size_t bytes) { in_flight_ -= bytes; }
  /// The next calls of `receive` return nothing, as they do when bytes have left.
  void return_early(int times) { early_ = times; }
  int sent() const { return sent_; }

  void send(net::Peer to, net::FrameHeader header, std::span<const std::byte> payload) override {
    inner_->send(to, header, payload);
    in_flight_ += payload.size();
    ++sent_;
  }
  std::optional<net::Message> receive(Moment deadline) override {
    if (early_ > 0) return --early_, std::nullopt;
    return inner_->receive(deadline);
  }
  std::size_t in_flight_bytes(net::Peer /*peer*/) const override { return in_flight_; }
  bool leaves_in_order(net::Peer /*peer*/) const override { return in_order_; }
  std::string describe(net::Peer peer) const override { return inner_->describe(peer); }
  void wake() override { inner_->wake(); }

 private:
  const std::unique_ptr<net::Transport> inner_;
  const bool in_order_;
  std::size_t in_flight_ = 0;
  int early_ = 0;
  int sent_ = 0;
};

/// Two ranks, of which rank 0 sends over a slow transport.
struct SlowPair {
  explicit SlowPair(bool in_order) {
    LinkOptions options;
    options.tuning = Tuning::built_in();
    options.clock = &clock;
    for (std::uint32_t r = 0; r < 2; ++r) {
      auto endpoint = network.endpoint({net::Role::worker, r}, ledgers[r]);
      transports.push_back(std::make_unique<SlowTransport>(std::move(endpoint), in_order));
      groups.push_back(make_link_group(*transports[r], r, 2, options));
    }
  }

  StoppedClock clock;
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

TEST_CASE("a rank that waits does not ask its peer because bytes have left") {
  SlowPair pair(true);
  std::vector<float> vector(256, 1);
  Work gather = pair.groups[0]->all_gather(std::span(vector), even_parts(vector.size(), 2));
  Work other = pair.groups[1]->all_gather(std::span(vector), even_parts(vector.size(), 2));
  const int before = pair.transports[0]->sent();
  pair.transports[0]->let_leave(512);
  pair.transports[0]->return_early(1000);
  gather.wait();
  CHECK(pair.transports[0]->sent() == before);
}
