#include <memory>
#include <utility>
#include <vector>

#include <psring/common/base/events/events.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/process_group.h>
#include <psring/ring/request.h>
#include <psring/ring/split.h>
#include <psring/ring/work.h>

namespace psring::ring {
namespace {

class ReportedOperation final : public Operation {
 public:
  ReportedOperation(Work work, Events::Flight flight) : work_(std::move(work)), flight_(std::move(flight)) {}

  bool advance() override {
    const bool done = work_.done();
    if (done) flight_.land();
    return done;
  }
  void wait() override {
    work_.wait();
    if (work_.done()) flight_.land();  // on a GPU the operation may still be in flight when `wait` returns
  }
  std::vector<std::size_t> awaited() const override { return work_.awaited(); }

 private:
  Work work_;
  Events::Flight flight_;
};

/// Starts a flight, named after the operation, with its bytes. `source`: the caller's line.
Events::Flight begin_flight(Events& events, const Request& request, Events::Source source) {
  return {events, {to_string(request.call.collective), {}, request.data.bytes()}, source};
}

/// The same operation; its flight ends once this rank knows that the operation is complete.
Work reported(Work work, Events::Flight flight) {
  return Work(std::make_shared<ReportedOperation>(std::move(work), std::move(flight)));
}

/// Throws usage if the parts do not fit the group, or the vector.
void check_parts(const Parts& parts, std::size_t count, std::size_t ranks) {
  if (parts.size() != ranks) fail(ErrorKind::usage, "parts of {} ranks in a group of {}", parts.size(), ranks);
  for (const auto& ranges : parts)
    for (const Range range : ranges)
      if (range.begin > range.end || range.end > count)
        fail(ErrorKind::usage, "a part [{}, {}) of a vector of {} elements", range.begin, range.end, count);
}

void check_rank(std::size_t rank, std::size_t ranks) {
  if (rank >= ranks) fail(ErrorKind::usage, "rank {} of a group of {}", rank, ranks);
}

void check_peer(std::size_t peer, std::size_t rank, std::size_t ranks) {
  check_rank(peer, ranks);
  if (peer == rank) fail(ErrorKind::usage, "rank {} sends to itself", peer);
}

}  // namespace

Work ProcessGroup::all_reduce(Vector data, const ReduceOp& op, Source source) {
  op.require_meaning(data.type);
  return call({{Collective::all_reduce, op.kind(), data.type, 0, data.count, fingerprint(op)}, data, op}, source);
}

Work ProcessGroup::reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op, Source source) {
  op.require_meaning(data.type);
  check_parts(parts, data.count, size_);
  const std::uint64_t print = fingerprint(op) ^ fingerprint(parts);
  return call({{Collective::reduce_scatter, op.kind(), data.type, 0, data.count, print}, data, op, &parts}, source);
}

Work ProcessGroup::all_gather(Vector data, const Parts& parts, Source source) {
  check_parts(parts, data.count, size_);
  return call({{Collective::all_gather, {}, data.type, 0, data.count, fingerprint(parts)}, data, {}, &parts}, source);
}

Work ProcessGroup::broadcast(Vector data, std::size_t root, Source source) {
  check_rank(root, size_);
  return call(broadcast_request(data, root), source);
}

Work ProcessGroup::barrier(Source source) { return call({}, source); }

Work ProcessGroup::last_barrier(Source source) { return call({.call = {.fingerprint = kLast}}, source); }

Work ProcessGroup::send(ConstVector data, std::size_t to, Source source) {
  check_peer(to, rank_, size_);
  const Vector only_read(const_cast<std::byte*>(data.data), data.count, data.type, data.processor);
  const auto receiver = static_cast<std::uint32_t>(to);
  return call({.call = {Collective::send, {}, data.type, receiver, data.count, 0}, .data = only_read, .peer = to},
              source);
}

Work ProcessGroup::recv(Vector data, std::size_t from, Source source) {
  check_peer(from, rank_, size_);
  const auto receiver = static_cast<std::uint32_t>(rank_);
  return call({.call = {Collective::recv, {}, data.type, receiver, data.count, 0}, .data = data, .peer = from}, source);
}

Work ProcessGroup::call(const Request& called, Source source) {
  Request request = called;
  request.control = control_;
  if (events_ == nullptr) return start(request);
  Events::Flight flight = begin_flight(*events_, request, source);
  return reported(start(request), std::move(flight));
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(std::uint32_t colour, std::uint32_t key) {
  return make_subgroup(agree_on_split(*this, colour, key, *next_group_));
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(std::span<const std::size_t> colours) {
  check(colours.size() == size_, "{} colours for {} ranks", colours.size(), size_);
  return make_subgroup(split_by_colours(colours, rank_, *next_group_));
}

std::unique_ptr<ProcessGroup> ProcessGroup::make_subgroup(const Split& split) {
  *next_group_ = split.next_group;
  std::unique_ptr<ProcessGroup> group = subgroup(split);
  group->next_group_ = next_group_;
  group->events_ = events_;
  return group;
}

}  // namespace psring::ring
