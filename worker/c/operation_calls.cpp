// The C interface: operations of groups.
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/c.h>
#include <psring/ring/split.h>
#include <psring/worker/c/guard.h>
#include <psring/worker/c/handles.h>

using psring::ErrorKind;
using psring::fail;
using psring::c::guarded;
using psring::c::Messages;
using psring::c::moment_in;
using psring::c::require;
using psring::c::Works;
using psring::c::write_moved;
using psring::ring::ElementType;
using psring::ring::Parts;
using psring::ring::ReduceOp;
using psring::ring::Vector;

namespace {

ElementType type_of(psring_type type) {
  if (type < PSRING_F32 || type > PSRING_I64) fail(ErrorKind::usage, "an unknown type: {}", type);
  return {static_cast<psring::DType>(type)};
}

ReduceOp op_of(psring_op op) {
  using enum ReduceOp::Kind;
  static constexpr ReduceOp::Kind kKinds[] = {sum, mean, product, min, max, bit_and, bit_or, bit_xor};
  if (op < PSRING_SUM || op > PSRING_BIT_XOR) fail(ErrorKind::usage, "an unknown reduction: {}", op);
  return kKinds[op];
}

Vector vector_of(void* data, size_t count, psring_type type) {
  const ElementType element = type_of(type);
  if (count > 0) require(data, "data");
  if (count > std::numeric_limits<std::ptrdiff_t>::max() / element.bytes())
    fail(ErrorKind::usage, "a vector of {} elements", count);
  return {static_cast<std::byte*>(data), count, element};
}

/// The sum of counts, which must not overflow.
size_t sum_of(std::span<const size_t> counts) {
  size_t sum = 0;
  for (const size_t count : counts)
    if (__builtin_add_overflow(sum, count, &sum)) fail(ErrorKind::usage, "counts whose sum overflows");
  return sum;
}

Parts parts_of(const size_t* counts, size_t count, size_t ranks) {
  if (counts == nullptr) {
    if (count % ranks != 0) fail(ErrorKind::usage, "{} elements are not {} equal parts", count, ranks);
    return psring::ring::even_parts(count, ranks);
  }
  const std::span<const size_t> sizes(counts, ranks);
  if (sum_of(sizes) != count) fail(ErrorKind::usage, "counts of {} elements for a vector of {}", sum_of(sizes), count);
  return psring::ring::parts_of_sizes(sizes);
}

psring::ring::Collective collective_of(psring_collective collective) {
  using enum psring::ring::Collective;
  static_assert(static_cast<int>(reduce_scatter) == PSRING_REDUCE_SCATTER &&
                static_cast<int>(all_gather) == PSRING_ALL_GATHER);
  if (collective < PSRING_ALL_REDUCE || collective > PSRING_ALL_GATHER)
    fail(ErrorKind::usage, "an unknown collective: {}", collective);
  return static_cast<psring::ring::Collective>(collective);
}

/// A vector as a caller gives it.
struct Data {
  void* at;
  size_t count;
  psring_type type;
};

/// Begins an operation: `begin` returns it, called under the engine's lock. `keeps`: the handle is also wanted for an
/// operation that is complete.
template <class Begin>
psring_status begin(psring_group* group, psring_work** work, Begin begin, bool keeps = false) {
  return guarded([&] {
    require(work, "work");
    *work = nullptr;
    require(group, "group");
    group->job->require_member();
    auto handle = std::make_unique<psring_work>();
    handle->job = group->job;
    handle->flight = group->job->engine().start([&]() -> std::shared_ptr<psring::c::Flight> {
      std::shared_ptr<psring::c::Flight> flight = begin();
      flight->group = group->parts;
      return flight;
    });
    const bool ended = handle->flight->ended.load(std::memory_order_acquire);  // memory order: see Flight::end
    // Another thread may have ended it meanwhile, with the error that ended the job.
    if (ended && handle->flight->error) throw psring::Error(*handle->flight->error);
    if (keeps || !ended) *work = handle.release();
  });
}

/// The same for an operation that is one work of the group, with one vector.
template <class Start>
psring_status start(psring_group* group, psring_work** work, const char* name, const Data& data, Start start) {
  return begin(group, work, [&] {
    const Vector vector = vector_of(data.at, data.count, data.type);
    auto works = std::make_shared<Works>(name, vector);
    works->add(start(*group->group, vector));
    return works;
  });
}

/// The group's messages, in a group of their own, so that they never meet the parts of an all-to-all. Called under the
/// engine's lock.
Messages& messages_of(psring_group& group) {
  std::shared_ptr<Messages>& messages = group.parts->messages;
  if (messages == nullptr) {
    psring::ring::Split split{.id = psring::c::id_of_messages(group.id), .rank = group.group->rank()};
    for (std::size_t r = 0; r < group.group->size(); ++r) split.ranks.push_back(r);
    split.next_group = split.id + 1;
    messages = std::make_shared<Messages>(group.group->subgroup(split));
  }
  return *messages;
}

/// The parts of an all-to-all at one rank.
struct Exchange {
  psring::ring::ProcessGroup& group;
  std::byte* in;
  std::span<const size_t> in_counts;
  std::byte* out;
  std::span<const size_t> out_counts;
  ElementType type;

  /// REQUIRES: the part that stays here has one size.
  void start(Works& works) const {
    const std::size_t n = group.size();
    const std::size_t rank = group.rank();
    std::vector<Vector> sends;
    std::vector<Vector> receives;
    std::size_t read = 0;
    std::size_t written = 0;
    for (std::size_t r = 0; r < n; ++r) {
      sends.emplace_back(in + read * type.bytes(), in_counts[r], type);
      receives.emplace_back(out + written * type.bytes(), out_counts[r], type);
      read += in_counts[r];
      written += out_counts[r];
    }
    for (std::size_t step = 1; step < n; ++step) {
      const std::size_t from = (rank + n - step) % n;
      if (receives[from].count > 0) works.add(group.recv(receives[from], from));
    }
    for (std::size_t step = 1; step < n; ++step) {
      const std::size_t to = (rank + step) % n;
      if (sends[to].count > 0) works.add(group.send(sends[to], to));
    }
    if (sends[rank].count > 0) std::memcpy(receives[rank].data, sends[rank].data, sends[rank].bytes());
  }
};

}  // namespace

psring_status psring_all_reduce(psring_group* group, void* data, size_t count, psring_type type, psring_op op,
                                psring_work** work) {
  return start(group, work, "all_reduce", {data, count, type},
               [&](auto& ranks, const Vector& vector) { return ranks.all_reduce(vector, op_of(op)); });
}

psring_status psring_reduce_scatter(psring_group* group, void* data, size_t count, const size_t* counts,
                                    psring_type type, psring_op op, psring_work** work) {
  return start(group, work, "reduce_scatter", {data, count, type}, [&](auto& ranks, const Vector& vector) {
    return ranks.reduce_scatter(vector, parts_of(counts, count, ranks.size()), op_of(op));
  });
}

psring_status psring_all_gather(psring_group* group, void* data, size_t count, const size_t* counts, psring_type type,
                                psring_work** work) {
  return start(group, work, "all_gather", {data, count, type}, [&](auto& ranks, const Vector& vector) {
    return ranks.all_gather(vector, parts_of(counts, count, ranks.size()));
  });
}

psring_status psring_broadcast(psring_group* group, void* data, size_t count, psring_type type, size_t root,
                               psring_work** work) {
  return start(group, work, "broadcast", {data, count, type},
               [&](auto& ranks, const Vector& vector) { return ranks.broadcast(vector, root); });
}

psring_status psring_barrier(psring_group* group, psring_work** work) {
  return begin(group, work, [&] {
    auto works = std::make_shared<Works>("barrier");
    works->add(group->group->barrier());
    return works;
  });
}

psring_status psring_all_to_all(psring_group* group, const void* in, const size_t* in_counts, void* out,
                                const size_t* out_counts, psring_type type, psring_work** work) {
  return begin(group, work, [&] {
    require(in_counts, "in_counts");
    require(out_counts, "out_counts");
    const std::size_t n = group->group->size();
    const std::size_t rank = group->group->rank();
    auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(in));
    auto* const to = static_cast<std::byte*>(out);
    const Exchange exchange{*group->group, from, {in_counts, n}, to, {out_counts, n}, type_of(type)};
    const Vector sent = vector_of(from, sum_of(exchange.in_counts), type);
    vector_of(to, sum_of(exchange.out_counts), type);
    if (in_counts[rank] != out_counts[rank])
      fail(ErrorKind::usage, "psring_all_to_all: rank {} sends {} elements to itself, and receives {}", rank,
           in_counts[rank], out_counts[rank]);
    auto works = std::make_shared<Works>("all_to_all", sent);
    exchange.start(*works);
    return works;
  });
}

psring_status psring_send(psring_group* group, const void* data, size_t count, psring_type type, size_t to, int64_t tag,
                          psring_work** work) {
  return begin(group, work,
               [&] { return messages_of(*group).send(vector_of(const_cast<void*>(data), count, type), to, tag); });
}

psring_status psring_recv(psring_group* group, void* data, size_t count, psring_type type, size_t from, int64_t tag,
                          psring_work** work) {
  const auto receive = [&] {
    const std::optional<std::size_t> source = from == PSRING_ANY_RANK ? std::nullopt : std::optional(from);
    return messages_of(*group).receive(vector_of(data, count, type), source, tag);
  };
  return begin(group, work, receive, from == PSRING_ANY_RANK);
}

psring_status psring_source(psring_work* work, size_t* rank) {
  return guarded([&] {
    require(work, "work");
    require(rank, "rank");
    const auto* const receive = dynamic_cast<const psring::c::Receive*>(work->flight.get());
    if (receive == nullptr || !receive->ended.load(std::memory_order_acquire) || receive->error)
      fail(ErrorKind::usage, "psring_source: not a receive that is complete");
    *rank = receive->source;
  });
}

psring_status psring_moved(psring_group* group, uint64_t* sent, uint64_t* received) {
  return guarded([&] {
    require("psring_moved", {{group, "group"}, {sent, "sent"}, {received, "received"}});
    group->job->require_own_process();
    write_moved(group->job->engine().locked([&] { return group->group->moved(); }), sent, received);
  });
}

psring_status psring_predict(psring_group* group, psring_collective collective, size_t count, psring_type type,
                             uint64_t* sent, uint64_t* received) {
  return guarded([&] {
    require("psring_predict", {{group, "group"}, {sent, "sent"}, {received, "received"}});
    group->job->require_own_process();
    const psring::ring::Collective call = collective_of(collective);
    const ElementType element = vector_of(nullptr, 0, type).type;
    if (count > std::numeric_limits<std::ptrdiff_t>::max() / element.bytes())
      fail(ErrorKind::usage, "a vector of {} elements", count);
    const psring::ring::Cost cost = group->job->engine().locked([&] {
      const bool has_parts = call != psring::ring::Collective::all_reduce;
      return group->group->predict(call, count, element,
                                   has_parts ? parts_of(nullptr, count, group->group->size()) : Parts{});
    });
    write_moved(cost, sent, received);
  });
}

psring_status psring_wait(psring_work* work, double timeout) {
  return guarded([&] {
    const psring::Moment until = moment_in(timeout);
    if (work == nullptr) return PSRING_OK;
    work->job->require_own_process();
    psring::c::Engine& engine = work->job->engine();
    if (engine.wait(*work->flight, until)) return PSRING_OK;
    const std::string doing = engine.doing(*work->flight);
    if (doing.empty() && engine.test(*work->flight)) return PSRING_OK;  // it has ended meanwhile
    return psring::c::pending(doing);
  });
}

psring_status psring_test(psring_work* work) {
  return guarded([&] {
    if (work == nullptr) return PSRING_OK;
    work->job->require_own_process();
    return work->job->engine().test(*work->flight) ? PSRING_OK : psring::c::pending("not complete");
  });
}

void psring_work_free(psring_work* work) {
  if (work == nullptr || !work->job->is_own_process()) return;
  guarded([&] { delete work; });
}
