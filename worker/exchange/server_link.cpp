#include <utility>

#include <psring/worker/compressor.h>
#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/server_link.h>
#include <psring/worker/ps_client.h>

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

class CompressedLink final : public ServerLink {
 public:
  CompressedLink(Compressor& compressor, std::unique_ptr<ServerLink> inner)
      : compressor_(compressor), inner_(std::move(inner)) {}

  void push(UnitId unit, std::uint64_t step, ConstElements gradient, std::size_t micro) override {
    inner_->push(unit, step, compressor_.encode(unit, step, micro, gradient), micro);
  }
  void push_pull(UnitId unit, std::uint64_t step, ConstElements gradient, Elements into) override {
    inner_->push_pull(unit, step, compressor_.encode(unit, step, 0, gradient), into);
  }
  void pull(UnitId unit, std::uint64_t version, Elements into, bool start_up) override {
    inner_->pull(unit, version, into, start_up);
  }
  void wait(UnitId unit, std::uint64_t version) override { inner_->wait(unit, version); }
  void wait_acknowledged(UnitId unit) override { inner_->wait_acknowledged(unit); }
  void wait_copied(UnitId unit) override { inner_->wait_copied(unit); }
  void progress() override { inner_->progress(); }
  Nanoseconds waited() const override { return inner_->waited(); }

 private:
  Compressor& compressor_;
  const std::unique_ptr<ServerLink> inner_;
};

}  // namespace

std::unique_ptr<ServerLink> make_direct_link(const World& world) { return std::make_unique<DirectLink>(world); }

std::unique_ptr<ServerLink> make_compressed_link(Compressor& compressor, std::unique_ptr<ServerLink> inner) {
  return std::make_unique<CompressedLink>(compressor, std::move(inner));
}

std::unique_ptr<ServerLink> make_server_link(const Plan& plan, const World& world) {
  if (Planned* device = planned(world.device)) return device->make_link();
  auto link = world.stages() ? make_staged_link(plan, world) : make_direct_link(world);
  return world.compressor != nullptr ? make_compressed_link(*world.compressor, std::move(link)) : std::move(link);
}

}  // namespace psring::worker
