#include <algorithm>
#include <memory>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/worker/compressor.h>
#include <psring/worker/strategy/mean_scatter.h>

namespace psring::worker {

using ring::Collective;

ring::Parts owners_of(const Layout& layout, Range units) {
  ring::Parts parts(layout.owners);
  std::size_t begin = 0;
  for (UnitId unit = units.begin; unit < units.end; ++unit) {
    if (!layout.units[unit].trained) continue;
    for (std::size_t owner = 0; owner < layout.owners; ++owner) {
      const Range range = layout.partition(unit).range(owner);
      parts[owner].push_back({begin + range.begin, begin + range.end});
    }
    begin += layout.units[unit].elements;
  }
  return parts;
}

/// Messages under way, to all owners and from all ranks. Once they are there they are read.
class MeanScatter::Coded final : public ring::Operation {
 public:
  Coded(MeanScatter& all, Range which, Elements values, std::size_t of_micro)
      : units(which), gradients(values), step(all.step_), micro(of_micro), all_(all) {}

  bool advance() override {
    if (!std::ranges::all_of(works, [](ring::Work& work) { return work.done(); })) return false;
    finish();
    return true;
  }
  void wait() override {
    for (ring::Work& work : works) work.wait();
    finish();
  }
  std::size_t awaited() const override {
    const auto first = std::ranges::find_if(works, [](ring::Work work) { return !work.done(); });
    return first == works.end() ? all_.owners_.rank() : first->awaited();
  }

  const Range units;
  const Elements gradients;
  const std::uint64_t step;
  const std::size_t micro;
  ConstElements own;  ///< of this rank's ranges
  std::vector<ring::Work> works;

 private:
  void finish() {
    if (!std::exchange(read_, true)) all_.read_all(*this);
  }

  MeanScatter& all_;
  bool read_ = false;
};

MeanScatter::MeanScatter(const Context& context, ring::ProcessGroup& owners) : context_(context), owners_(owners) {
  if (context.compressor == nullptr) return;
  const auto& groups = context.shard_groups;
  for (std::size_t rank = 0; rank < context.workers; ++rank)
    if (owners.size() == context.workers || groups[rank] == groups[context.rank]) workers_.push_back(rank);
  check(workers_.size() == owners.size(), "{} owners of {} workers", owners.size(), workers_.size());
  received_ = context.buffer((owners.size() - 1) * bytes_of({0, context.layout.units.size()}), Category::communication,
                             nullptr);
}

void MeanScatter::for_each(Range units, const auto& body) const {
  std::size_t begin = 0;
  for (UnitId unit = units.begin; unit < units.end; ++unit) {
    if (context_.layout.units[unit].trained) body(unit, begin);
    begin += context_.layout.trained_elements(unit);
  }
}

/// What goes to each owner: ranges of a unit are alike.
std::size_t MeanScatter::bytes_of(Range units) const {
  std::size_t bytes = 0;
  for_each(units, [&](UnitId unit, std::size_t /*begin*/) {
    bytes += context_.compressor->codec().bytes(context_.layout.partition(unit).share());
  });
  return bytes;
}

Elements MeanScatter::received(std::size_t rank, Range units) {
  const std::size_t place = rank < owners_.rank() ? rank : rank - 1;
  const std::size_t each = received_.size_bytes() / (owners_.size() - 1);
  return received_.elements(DType::u8).subspan(place * each + bytes_of({0, units.begin}), bytes_of(units));
}

ring::Work MeanScatter::start(Range units, Elements gradients, std::size_t micro) {
  if (context_.compressor == nullptr)
    return owners_.reduce_scatter(gradients, owners_of(context_.layout, units), ring::ReduceOp::Kind::mean);
  auto coded = std::make_shared<Coded>(*this, units, gradients, micro);  // shared, as all operations are
  for (std::size_t rank = 0; rank < owners_.size(); ++rank) {
    if (rank == owners_.rank()) continue;
    coded->works.push_back(owners_.recv(received(rank, units), rank));
  }
  for (std::size_t owner = 0; owner < owners_.size(); ++owner) {
    // What an owner gets lies together: see where the compressor's parts are made.
    ConstElements message;
    for_each(units, [&](UnitId unit, std::size_t begin) {
      const Range range = context_.layout.partition(unit).range(owner);
      const ConstElements values = gradients.part({begin + range.begin, begin + range.end});
      const ConstElements written = context_.compressor->encode(unit, range, step_, micro, values);
      message = message.empty() ? written : message.subspan(0, message.size() + written.size());
    });
    if (owner == owners_.rank())
      coded->own = message;
    else
      coded->works.push_back(owners_.send(message, owner));
  }
  if (!coded->works.empty()) coded->works.back().done();  // all that go together have been asked for: they leave
  return ring::Work(std::move(coded));
}

void MeanScatter::read_all(const Coded& coded) {
  std::vector<Compressor::Written> written(owners_.size());
  std::size_t at = 0;
  for_each(coded.units, [&](UnitId unit, std::size_t begin) {
    const Range range = context_.layout.partition(unit).range(owners_.rank());
    const std::size_t bytes = context_.compressor->codec().bytes(range.size());
    for (std::size_t rank = 0; rank < owners_.size(); ++rank) {
      const ConstElements all = rank == owners_.rank() ? coded.own : received(rank, coded.units);
      written[rank] = {workers_[rank], all.subspan(at, bytes)};
    }
    context_.compressor->mean(unit, range, coded.step, coded.micro, written,
                              coded.gradients.part({begin + range.begin, begin + range.end}));
    at += bytes;
  });
}

void MeanScatter::predict(Range units, Prediction& sum) const {
  ring::Cost moved;
  if (context_.compressor == nullptr) {
    std::size_t elements = 0;
    for_each(units, [&](UnitId unit, std::size_t) { elements += context_.layout.units[unit].elements; });
    moved = owners_.predict(Collective::reduce_scatter, elements, {context_.layout.gradient_type},
                            owners_of(context_.layout, units));
  } else {
    moved.sent = moved.received = (owners_.size() - 1) * bytes_of(units);
  }
  sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
  sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
}

}  // namespace psring::worker
