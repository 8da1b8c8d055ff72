// The C interface: operations of groups.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <psring/c.h>
#include <psring/c/guard.h>
#include <psring/c/handles.h>

using psring::ErrorKind;
using psring::fail;
using psring::c::guarded;
using psring::c::moment_in;
using psring::c::require;
using psring::ring::ElementType;
using psring::ring::Parts;
using psring::ring::ReduceOp;
using psring::ring::Vector;
using psring::ring::Work;

namespace {

ElementType type_of(psring_type type) {
  if (type < PSRING_F32 || type > PSRING_I64) fail(ErrorKind::usage, "an unknown type: {}", static_cast<int>(type));
  return {static_cast<psring::DType>(type)};
}

ReduceOp op_of(psring_op op) {
  using Kind = ReduceOp::Kind;
  switch (op) {
    case PSRING_SUM:
      return Kind::sum;
    case PSRING_MEAN:
      return Kind::mean;
    case PSRING_PRODUCT:
      return Kind::product;
    case PSRING_MIN:
      return Kind::min;
    case PSRING_MAX:
      return Kind::max;
    case PSRING_BIT_AND:
      return Kind::bit_and;
    case PSRING_BIT_OR:
      return Kind::bit_or;
    case PSRING_BIT_XOR:
      return Kind::bit_xor;
  }
  fail(ErrorKind::usage, "an unknown reduction: {}", static_cast<int>(op));
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

/// Starts an operation: `start` is called with the group and the list of its works.
template <class Start>
psring_status start(psring_group* group, psring_work** work, Start start) {
  return guarded([&] {
    require(work, "work");
    *work = nullptr;
    require(group, "group");
    group->job->require_own_process();
    auto handle = std::make_unique<psring_work>();
    handle->job = group->job;
    handle->flight = group->job->engine().start([&](std::vector<Work>& works) { start(*group->group, works); });
    if (handle->flight != nullptr) *work = handle.release();
    return PSRING_OK;
  });
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
  void start(std::vector<Work>& works) const {
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
      if (receives[from].count > 0) works.push_back(group.recv(receives[from], from));
    }
    for (std::size_t step = 1; step < n; ++step) {
      const std::size_t to = (rank + step) % n;
      if (sends[to].count > 0) works.push_back(group.send(sends[to], to));
    }
    if (sends[rank].count > 0) std::memcpy(receives[rank].data, sends[rank].data, sends[rank].bytes());
  }
};

}  // namespace

psring_status psring_all_reduce(psring_group* group, void* data, size_t count, psring_type type, psring_op op,
                                psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(ranks.all_reduce(vector_of(data, count, type), op_of(op)));
  });
}

psring_status psring_reduce_scatter(psring_group* group, void* data, size_t count, const size_t* counts,
                                    psring_type type, psring_op op, psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(
        ranks.reduce_scatter(vector_of(data, count, type), parts_of(counts, count, ranks.size()), op_of(op)));
  });
}

psring_status psring_all_gather(psring_group* group, void* data, size_t count, const size_t* counts, psring_type type,
                                psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(ranks.all_gather(vector_of(data, count, type), parts_of(counts, count, ranks.size())));
  });
}

psring_status psring_broadcast(psring_group* group, void* data, size_t count, psring_type type, size_t root,
                               psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(ranks.broadcast(vector_of(data, count, type), root));
  });
}

psring_status psring_barrier(psring_group* group, psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) { works.push_back(ranks.barrier()); });
}

psring_status psring_all_to_all(psring_group* group, const void* in, const size_t* in_counts, void* out,
                                const size_t* out_counts, psring_type type, psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    require(in_counts, "in_counts");
    require(out_counts, "out_counts");
    const std::size_t n = ranks.size();
    const Exchange exchange{ranks, const_cast<std::byte*>(static_cast<const std::byte*>(in)),
                            {in_counts, n}, static_cast<std::byte*>(out),
                            {out_counts, n}, type_of(type)};
    vector_of(exchange.in, sum_of(exchange.in_counts), type);
    vector_of(exchange.out, sum_of(exchange.out_counts), type);
    if (in_counts[ranks.rank()] != out_counts[ranks.rank()])
      fail(ErrorKind::usage, "psring_all_to_all: rank {} sends {} elements to itself, and receives {}", ranks.rank(),
           in_counts[ranks.rank()], out_counts[ranks.rank()]);
    exchange.start(works);
  });
}

psring_status psring_send(psring_group* group, const void* data, size_t count, psring_type type, size_t to,
                          psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(ranks.send(vector_of(const_cast<void*>(data), count, type), to));
  });
}

psring_status psring_recv(psring_group* group, void* data, size_t count, psring_type type, size_t from,
                          psring_work** work) {
  return start(group, work, [&](auto& ranks, std::vector<Work>& works) {
    works.push_back(ranks.recv(vector_of(data, count, type), from));
  });
}

psring_status psring_wait(psring_work* work, double timeout) {
  return guarded([&] {
    const psring::Moment until = moment_in(timeout);
    if (work == nullptr) return PSRING_OK;
    work->job->require_own_process();
    return work->job->engine().wait(*work->flight, until) ? PSRING_OK : PSRING_PENDING;
  });
}

psring_status psring_test(psring_work* work) {
  return guarded([&] {
    if (work == nullptr) return PSRING_OK;
    work->job->require_own_process();
    return work->job->engine().test(*work->flight) ? PSRING_OK : PSRING_PENDING;
  });
}

void psring_work_free(psring_work* work) {
  if (work == nullptr || !work->job->is_own_process()) return;
  guarded([&] {
    delete work;
    return PSRING_OK;
  });
}
