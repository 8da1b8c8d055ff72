#include <utility>

#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/servers/server_link.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::worker {
namespace {

class DirectLink final : public ServerLink {
 public:
  explicit DirectLink(const World& world) : client_(*world.client), clock_(world.clock) {}

  void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) override {
    client_.push(unit, step, gradient, micro);
  }
  void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into) override {
    client_.push_pull(unit, step, gradient, into);
  }
  void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) override {
    client_.pull(unit, version, into, start_up);
  }
  void wait(UnitId unit, std::uint64_t version) override {
    if (client_.has(unit, version)) return;
    const Moment start = clock_.now();
    client_.wait(unit, version);
    waited_ += clock_.now() - start;
  }
  void wait_acknowledged(UnitId unit) override {
    const Moment start = clock_.now();
    client_.wait_acknowledged(unit);
    waited_ += clock_.now() - start;
  }
  void progress() override { client_.progress(); }
  Nanoseconds waited() const override { return waited_; }

 private:
  PsClient& client_;
  const Clock& clock_;
  Nanoseconds waited_{0};
};

}  // namespace

std::unique_ptr<ServerLink> make_direct_link(const World& world) { return std::make_unique<DirectLink>(world); }

std::unique_ptr<ServerLink> make_server_link(const Plan& plan, const World& world) {
  if (Planned* device = planned(world.device)) return device->make_link();
  auto link = world.stages() ? make_staged_link(plan, world) : make_direct_link(world);
  return world.compressor != nullptr ? make_compressed_link(*world.compressor, std::move(link)) : std::move(link);
}

}  // namespace psring::worker
