#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/ownership.h>
#include <psring/worker/exchange/workers/workers.h>

namespace psring::worker {
namespace {

class SharedParameters final : public Parameters {
 public:
  SharedParameters(const Plan& plan, const World& world, Workers& workers);
  ~SharedParameters() override;
  SharedParameters(const SharedParameters&) = delete;
  SharedParameters& operator=(const SharedParameters&) = delete;

  void start() override;
  void acquire(UnitId unit, Pass pass) override;
  void updated() override;
  void quiesce() override;
  Elements owned(UnitId unit) override { return ownership_.of(unit, world_.units[unit].parameters); }
  void predict(Prediction& sum) const override { sum.worker_memory[Category::parameters] += booked_bytes_; }

 private:
  const Plan& plan_;
  const World& world_;
  Workers& workers_;
  const Ownership ownership_;
  const std::size_t booked_bytes_;
  Arena* const arena_;
  std::span<std::byte> memory_;  ///< of the first rank's arena; empty in the other ranks
  ring::Work all_updated_;       ///< done once all owners have updated
};

/// Arena::mark of an arena's first byte.
constexpr std::uint64_t kBegin = 1;

void check_shared(ring::ProcessGroup& owners) {
  for (std::size_t rank = 0; rank < owners.size(); ++rank)
    if (owners.reach(rank, kBegin) == nullptr)
      fail(ErrorKind::usage,
           "--share-host-parameters: workers {} and {} of a shard group share no memory; --shard-group host "
           "makes groups of those that do",
           owners.rank(), rank);
}

SharedParameters::SharedParameters(const Plan& plan, const World& world, Workers& workers)
    : plan_(plan),
      world_(world),
      workers_(workers),
      ownership_(plan.layout, workers.owners().rank()),
      booked_bytes_(plan.layout.parameter_bytes() / plan.layout.owners),
      arena_(workers.owners().arena()) {
  ring::ProcessGroup& owners = workers.owners();
  check_shared(owners);
  const Layout& layout = plan.layout;
  std::int64_t mark = 0;
  if (owners.rank() == 0) {
    memory_ = arena_->allocate(layout.parameter_bytes());
    mark = static_cast<std::int64_t>(arena_->mark(memory_.data()));
  }
  owners.broadcast(std::span(&mark, 1), 0).wait();
  std::byte* at = owners.reach(0, static_cast<std::uint64_t>(mark));
  for (UnitId unit = 0; unit < layout.units.size(); ++unit) {
    world.units[unit].parameters = Elements(at, layout.units[unit].elements, layout.parameter_type);
    at += layout.parameter_bytes(unit);
  }
  world.memory.book(Category::parameters, booked_bytes_);
}

SharedParameters::~SharedParameters() {
  world_.memory.release(Category::parameters, booked_bytes_);
  if (!memory_.empty()) arena_->free(memory_);
}

void SharedParameters::start() {
  for (UnitId unit = 0; unit < world_.units.size(); ++unit) plan_.initialise(unit, ownership_.range(unit), owned(unit));
  workers_.broadcast({});
  updated();
}

void SharedParameters::acquire(UnitId /*unit*/, Pass /*pass*/) { workers_.wait(all_updated_); }

void SharedParameters::updated() { all_updated_ = workers_.owners().barrier(); }

void SharedParameters::quiesce() { workers_.wait(all_updated_); }

}  // namespace

std::unique_ptr<Parameters> make_shared_parameters(const Plan& plan, const World& world, Workers& workers) {
  return std::make_unique<SharedParameters>(plan, world, workers);
}

}  // namespace psring::worker
