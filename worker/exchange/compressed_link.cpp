#include <utility>

#include <psring/worker/exchange/servers/server_link.h>
#include <psring/worker/state/compressor.h>

namespace psring::worker {
namespace {

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

std::unique_ptr<ServerLink> make_compressed_link(Compressor& compressor, std::unique_ptr<ServerLink> inner) {
  return std::make_unique<CompressedLink>(compressor, std::move(inner));
}

}  // namespace psring::worker
