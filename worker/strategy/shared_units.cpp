#include <psring/common/base/error.h>
#include <psring/worker/strategy/shared_units.h>

namespace psring::worker {
namespace {

/// What Arena::mark gives for an arena's beginning.
constexpr std::uint64_t kBegin = 1;

void check_shared(ring::ProcessGroup& owners) {
  for (std::size_t rank = 0; rank < owners.size(); ++rank)
    if (owners.reach(rank, kBegin) == nullptr)
      fail(ErrorKind::usage,
           "--share-host-parameters: workers {} and {} of a shard group share no memory; --shard-group host "
           "makes groups of those that do",
           owners.rank(), rank);
}

}  // namespace

SharedUnits::SharedUnits(const Context& context, ring::ProcessGroup& owners)
    : booked_bytes_(context.layout.parameter_bytes() / context.layout.owners),
      ledger_(context.memory),
      arena_(owners.arena()) {
  check_shared(owners);
  const Layout& layout = context.layout;
  std::int64_t mark = 0;
  if (owners.rank() == 0) {
    memory_ = arena_->allocate(layout.parameter_bytes());
    mark = static_cast<std::int64_t>(arena_->mark(memory_.data()));
  }
  owners.broadcast(std::span(&mark, 1), 0).wait();
  std::byte* at = owners.reach(0, static_cast<std::uint64_t>(mark));
  for (UnitId unit = 0; unit < layout.units.size(); ++unit) {
    context.units[unit].parameters = Elements(at, layout.units[unit].elements, layout.parameter_type);
    at += layout.parameter_bytes(unit);
  }
  ledger_.book(Category::parameters, booked_bytes_);
}

SharedUnits::~SharedUnits() {
  ledger_.release(Category::parameters, booked_bytes_);
  if (!memory_.empty()) arena_->free(memory_);
}

}  // namespace psring::worker
