#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/table.h>
#include <psring/ring/collectives.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/tests/support/ring_worlds.h>

using namespace psring;
using namespace psring::ring;
using Catch::Contains;
using psring::test::ring_worlds;
using psring::test::run_ranks;

namespace {

// Catch's assertions belong to one thread: ranks throw instead.
void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}
void require(bool holds, const std::function<std::string()>& what) {
  if (!holds) throw std::runtime_error(what());
}

/// Small numbers that every type holds exactly, and whose sums and products of eight stay so.
int value_of(std::size_t rank, std::size_t i) { return static_cast<int>((rank * 7 + i * 3) % 3); }

template <class T>
T make(int value) {
  return static_cast<T>(static_cast<float>(value));
}
template <class T>
double number(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

double expected_of(ReduceOp::Kind op, std::size_t ranks, std::size_t i) {
  double result = value_of(0, i);
  for (std::size_t r = 1; r < ranks; ++r) {
    const double next = value_of(r, i);
    const auto a = static_cast<long>(result);
    const auto b = static_cast<long>(next);
    switch (op) {
      case ReduceOp::Kind::sum:
      case ReduceOp::Kind::mean:
        result += next;
        break;
      case ReduceOp::Kind::product:
        result *= next;
        break;
      case ReduceOp::Kind::min:
        result = std::min(result, next);
        break;
      case ReduceOp::Kind::max:
        result = std::max(result, next);
        break;
      case ReduceOp::Kind::logical_and:
        result = a != 0 && b != 0;
        break;
      case ReduceOp::Kind::logical_or:
        result = a != 0 || b != 0;
        break;
      case ReduceOp::Kind::logical_xor:
        result = (a != 0) != (b != 0);
        break;
      case ReduceOp::Kind::bit_and:
        result = static_cast<double>(a & b);
        break;
      case ReduceOp::Kind::bit_or:
        result = static_cast<double>(a | b);
        break;
      case ReduceOp::Kind::bit_xor:
        result = static_cast<double>(a ^ b);
        break;
      default:
        break;
    }
  }
  if (op == ReduceOp::Kind::mean) result /= static_cast<double>(ranks);
  return result;
}

/// A vector in the group's arena, or elsewhere.
template <class T>
class Values {
 public:
  Values(ProcessGroup& group, std::size_t count, bool registered) : arena_(registered ? group.arena() : nullptr) {
    if (arena_ != nullptr) {
      bytes_ = arena_->allocate(std::max<std::size_t>(count * sizeof(T), 1));
      values_ = {reinterpret_cast<T*>(bytes_.data()), count};
    } else {
      own_.resize(count);
      values_ = own_;
    }
  }
  ~Values() {
    if (arena_ != nullptr) arena_->free(bytes_);
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  std::span<T> span() const { return values_; }
  T& operator[](std::size_t i) const { return values_[i]; }
  std::size_t size() const { return values_.size(); }
  void fill(std::size_t rank) const {
    for (std::size_t i = 0; i < size(); ++i) values_[i] = make<T>(value_of(rank, i));
  }

 private:
  Arena* arena_;
  std::span<std::byte> bytes_;
  std::vector<T> own_;
  std::span<T> values_;
};

constexpr std::array kFloatOps = {ReduceOp::Kind::sum, ReduceOp::Kind::mean, ReduceOp::Kind::product,
                                  ReduceOp::Kind::min, ReduceOp::Kind::max};
constexpr std::array kIntegerOps = {
    ReduceOp::Kind::sum,         ReduceOp::Kind::product,    ReduceOp::Kind::min,         ReduceOp::Kind::max,
    ReduceOp::Kind::logical_and, ReduceOp::Kind::logical_or, ReduceOp::Kind::logical_xor, ReduceOp::Kind::bit_and,
    ReduceOp::Kind::bit_or,      ReduceOp::Kind::bit_xor};

template <class T>
void expect_reduced(const Values<T>& values, Range range, ReduceOp::Kind op, std::size_t ranks, const char* what) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    // 16-bit floats round a third or a fifth.
    const double wanted = number(make<T>(0)) + expected_of(op, ranks, i);
    const double tolerance = op == ReduceOp::Kind::mean ? 1e-2 * std::max(1.0, wanted) : 0;
    require(std::abs(number(values[i]) - wanted) <= tolerance, [&] {
      return std::string(what) + " " + ReduceOp(op).name() + " [" + std::to_string(i) +
             "]: " + std::to_string(number(values[i])) + ", expected " + std::to_string(wanted);
    });
  }
}

template <class T>
void try_collectives(ProcessGroup& group, std::size_t count, bool registered, std::span<const ReduceOp::Kind> ops) {
  const std::size_t n = group.size();
  const std::size_t me = group.rank();
  const Values<T> values(group, count, registered);
  const Range all{0, count};
  // Uneven: the first rank has nothing of a small one, the last most.
  Parts uneven(n);
  for (std::size_t r = 0; r < n; ++r) uneven[r] = {{r * r * count / (n * n), (r + 1) * (r + 1) * count / (n * n)}};
  for (const ReduceOp::Kind op : ops) {
    values.fill(me);
    group.all_reduce(values.span(), op).wait();
    expect_reduced(values, all, op, n, "all_reduce");
    values.fill(me);
    group.reduce_scatter(values.span(), uneven, op).wait();
    expect_reduced(values, uneven[me].front(), op, n, "reduce_scatter");
    values.fill(me);
    reduce_to(group, values.span(), op, n - 1);
    if (me == n - 1) expect_reduced(values, all, op, n, "reduce");
  }
  const auto expect_of = [&](const Values<T>& got, std::size_t i, std::size_t rank, std::size_t index,
                             const char* what) {
    require(number(got[i]) == value_of(rank, index), [&] { return fmt::format("{} [{}]", what, i); });
  };
  for (std::size_t i = 0; i < count; ++i) values[i] = make<T>(0);
  for (std::size_t i = uneven[me][0].begin; i < uneven[me][0].end; ++i) values[i] = make<T>(value_of(me, i));
  group.all_gather(values.span(), uneven).wait();
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t i = uneven[r][0].begin; i < uneven[r][0].end; ++i) expect_of(values, i, r, i, "all_gather");
  values.fill(me);
  group.broadcast(values.span(), n / 2).wait();
  for (std::size_t i = 0; i < count; ++i) expect_of(values, i, n / 2, i, "broadcast");

  const Values<T> whole(group, n * count, registered);
  const Values<T> other(group, n * count, registered);
  values.fill(me);
  all_gather(group, values.span(), whole.span());
  for (std::size_t i = 0; i < n * count; ++i) expect_of(whole, i, i / count, i % count, "even all_gather");
  gather(group, values.span(), other.span(), 0);
  if (me == 0)
    for (std::size_t i = 0; i < n * count; ++i) expect_of(other, i, i / count, i % count, "gather");
  whole.fill(me);
  scatter(group, whole.span(), values.span(), n - 1);
  for (std::size_t i = 0; i < count; ++i) expect_of(values, i, n - 1, me * count + i, "scatter");
  all_to_all(group, whole.span(), other.span());
  for (std::size_t i = 0; i < n * count; ++i) expect_of(other, i, i / count, me * count + i % count, "all_to_all");
  group.barrier().wait();
}

template <class T>
void try_located(ProcessGroup& group, std::size_t count) {
  const Values<Located<T>> values(group, count, true);
  for (const bool largest : {true, false}) {
    for (std::size_t i = 0; i < count; ++i)
      values[i] = {make<T>(value_of(group.rank(), i)), static_cast<std::int64_t>(group.rank())};
    group.all_reduce(values.span(), largest ? ReduceOp::Kind::maxloc : ReduceOp::Kind::minloc).wait();
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t best = 0;
      for (std::size_t r = 1; r < group.size(); ++r)
        if (largest ? value_of(r, i) > value_of(best, i) : value_of(r, i) < value_of(best, i)) best = r;
      require(values[i].index == static_cast<std::int64_t>(best) && number(values[i].value) == value_of(best, i),
              [&] { return fmt::format("located [{}]", i); });
    }
  }
}

}  // namespace

TEST_CASE("exact vectors of four ranks") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  INFO(world);
  run_ranks(world, 4, [](ProcessGroup& group) {
    const auto r = static_cast<float>(group.rank());
    std::vector<float> values{0 + r, 1 + r, 2 + r, 3 + r};
    group.all_reduce(std::span(values), ReduceOp()).wait();
    require(values == std::vector<float>{6, 10, 14, 18}, "all_reduce");
    std::vector<float> in{0 + r, 1 + r, 2 + r, 3 + r};
    std::vector<float> mine(1);
    reduce_scatter(group, std::span(in), std::span(mine), ReduceOp());
    require(mine[0] == 6 + 4 * r, "reduce_scatter");
    std::vector<float> all(4);
    all_gather(group, std::span<const float>(mine), std::span(all));
    require(all == std::vector<float>{6, 10, 14, 18}, "all_gather");
  });
}

TEST_CASE(
    "a vector outside of the arena takes several slices of staging memory, with more ranks than processors, too") {
  const std::string world = GENERATE("shm", "met-shm");
  const std::size_t ranks = GENERATE(2, 3, 4, 8);
  INFO(world << ", " << ranks << " ranks");
  const std::array<ReduceOp::Kind, 1> sum{ReduceOp::Kind::sum};
  run_ranks(world, ranks, [&](ProcessGroup& group) { try_collectives<float>(group, 900'001, false, sum); });
}

TEST_CASE("every collective, operation, type, size and number of ranks is as the reference") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const std::size_t ranks = GENERATE(1, 2, 3, 4, 5, 8);
  INFO(world << ", " << ranks << " ranks");
  run_ranks(world, ranks, [&](ProcessGroup& group) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, ranks - 1, std::size_t{1237}, std::size_t{150'001}})
      for (const bool registered : {true, false}) {
        if (!registered && count == 0) continue;
        try_collectives<float>(group, count, registered, kFloatOps);
        if (count > 100'000 || !registered) continue;  // the others' bytes move alike
        try_collectives<double>(group, count, registered, kFloatOps);
        try_collectives<Half>(group, count, registered, kFloatOps);
        try_collectives<BFloat16>(group, count, registered, kFloatOps);
        try_collectives<std::int8_t>(group, count, registered, kIntegerOps);
        try_collectives<std::uint8_t>(group, count, registered, kIntegerOps);
        try_collectives<std::int32_t>(group, count, registered, kIntegerOps);
        try_collectives<std::int64_t>(group, count, registered, kIntegerOps);
      }
  });
}

TEST_CASE("maxloc and minloc find the lowest rank of the best value") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const std::size_t ranks = GENERATE(1, 2, 3, 5);
  run_ranks(world, ranks, [](ProcessGroup& group) {
    for (const std::size_t count : {1, 300, 3001}) {
      try_located<float>(group, count);
      try_located<double>(group, count);
      try_located<Half>(group, count);
      try_located<BFloat16>(group, count);
      try_located<std::int8_t>(group, count);
      try_located<std::uint8_t>(group, count);
      try_located<std::int32_t>(group, count);
      try_located<std::int64_t>(group, count);
    }
  });
}

TEST_CASE("a user's operation") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const std::size_t count = GENERATE(3, 40'000);
  run_ranks(world, 3, [&](ProcessGroup& group) {
    const ReduceOp gcd = ReduceOp::own("gcd", [](Vector into, ConstVector from) {
      auto* a = reinterpret_cast<std::int64_t*>(into.data);
      const auto* b = reinterpret_cast<const std::int64_t*>(from.data);
      for (std::size_t i = 0; i < into.count; ++i) a[i] = std::gcd(a[i], b[i]);
    });
    std::vector<std::int64_t> values(count, std::array{12, 18, 30}[group.rank()]);
    group.all_reduce(std::span(values), gcd).wait();
    require(values == std::vector<std::int64_t>(count, 6), "gcd");
  });
}

TEST_CASE("many operations may be under way") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  run_ranks(world, 3, [](ProcessGroup& group) {
    constexpr std::size_t kOperations = 100;
    std::vector<std::vector<float>> vectors;
    std::vector<Work> works;
    for (std::size_t k = 0; k < kOperations; ++k) {
      vectors.emplace_back(1 + k * 37, static_cast<float>(k));
      works.push_back(group.all_reduce(std::span(vectors.back()), ReduceOp()));
    }
    for (std::size_t k = kOperations; k-- > 0;) works[k].wait();
    for (std::size_t k = 0; k < kOperations; ++k)
      require(vectors[k] == std::vector<float>(1 + k * 37, static_cast<float>(3 * k)), "operation");
  });
}

TEST_CASE("operations are completed by asking alone") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  run_ranks(world, 3, [](ProcessGroup& group) {
    std::vector<float> values(40'000, 1);
    Work work = group.all_reduce(std::span(values), ReduceOp());
    while (!work.done()) std::this_thread::yield();
    require(values == std::vector<float>(40'000, 3), "sum");
    group.barrier().wait();
  });
}

TEST_CASE("subgroups are groups of their own") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  run_ranks(world, 5, [](ProcessGroup& group) {
    const std::size_t me = group.rank();
    const auto odd_or_even = group.split(me % 2, static_cast<std::uint32_t>(10 - me));  // in reverse
    require(odd_or_even->size() == (me % 2 == 0 ? 3 : 2), "size");
    require(odd_or_even->rank() == (me % 2 == 0 ? 2 - me / 2 : 1 - me / 2), "rank");
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int32_t> sum(2000, static_cast<std::int32_t>(me));
      odd_or_even->all_reduce(std::span(sum), ReduceOp()).wait();
      require(sum == std::vector<std::int32_t>(2000, me % 2 == 0 ? 6 : 4), "sum of the subgroup");
      group.all_reduce(std::span(sum), ReduceOp()).wait();
      require(sum[1999] == 3 * 6 + 2 * 4, "sum of all");
    }
    const auto again = odd_or_even->split(0, 0);
    std::vector<std::int32_t> one{1};
    again->all_reduce(std::span(one), ReduceOp()).wait();
    require(one[0] == static_cast<std::int32_t>(again->size()), "a subgroup's subgroup");
  });
}

TEST_CASE("subgroups of different groups do not meet") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  run_ranks(world, 4, [](ProcessGroup& group) {
    const auto me = static_cast<std::uint32_t>(group.rank());
    const auto pair = group.split(me / 2, me);
    const auto other_pair = group.split(me % 2, me);
    const auto again = pair->split(0, me);
    const auto other_again = other_pair->split(0, me);
    const auto add = [&](ProcessGroup& of, std::size_t partner) {
      std::vector<std::int32_t> sum(3000, static_cast<std::int32_t>(1U << me));
      of.all_reduce(std::span(sum), ReduceOp()).wait();
      require(sum == std::vector<std::int32_t>(3000, (1 << me) + (1 << partner)), "sum of a pair");
    };
    for (int round = 0; round < 50; ++round) {
      add(*pair, me ^ 1U);
      add(*other_pair, me ^ 2U);
      add(*again, me ^ 1U);
      add(*other_again, me ^ 2U);
    }
  });
}

TEST_CASE("messages between two ranks keep their order") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  run_ranks(world, 3, [](ProcessGroup& group) {
    constexpr std::size_t kMessages = 60;
    const std::size_t next = (group.rank() + 1) % 3;
    const std::size_t before = (group.rank() + 2) % 3;
    const auto size = [](std::size_t k) { return k * k * 17 % 5000; };
    std::vector<std::vector<std::int32_t>> out;
    std::vector<std::vector<std::int32_t>> in;
    std::vector<Work> works;
    for (std::size_t k = 0; k < kMessages; ++k) {
      out.emplace_back(size(k), static_cast<std::int32_t>(100 * group.rank() + k));
      in.emplace_back(size(k));
    }
    for (std::size_t k = 0; k < kMessages; ++k) {
      works.push_back(group.send(std::span<const std::int32_t>(out[k]), next));
      works.push_back(group.recv(std::span(in[k]), before));
    }
    for (Work& work : works) work.wait();
    for (std::size_t k = 0; k < kMessages; ++k)
      require(in[k] == std::vector<std::int32_t>(size(k), static_cast<std::int32_t>(100 * before + k)), "message");
  });
}

TEST_CASE("payload is what the plan says") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const std::size_t ranks = GENERATE(1, 2, 3, 4);
  const std::size_t count = GENERATE(0, 10, 12'288, 98'304);
  INFO(world << ", " << ranks << " ranks, " << count << " elements");
  run_ranks(world, ranks, [&](ProcessGroup& group) {
    const Values<float> values(group, count, true);
    values.fill(group.rank());
    const ElementType type{};
    const Parts parts = even_parts(count, ranks);
    const auto expect = [&](Collective collective, const Parts& of, const std::function<void()>& body) {
      group.barrier().wait();
      const Moved before = group.moved();
      group.barrier().wait();
      body();
      group.barrier().wait();
      const Moved after = group.moved();
      group.barrier().wait();
      const Cost predicted = group.predict(collective, count, type, of, ranks - 1);
      require(after.sent - before.sent == predicted.sent && after.received - before.received == predicted.received,
              [&] {
                return fmt::format("{}: sent {}, predicted {}; received {}, predicted {}", to_string(collective),
                                   after.sent - before.sent, predicted.sent, after.received - before.received,
                                   predicted.received);
              });
    };
    expect(Collective::all_reduce, {}, [&] { group.all_reduce(values.span(), ReduceOp()).wait(); });
    expect(Collective::reduce_scatter, parts, [&] { group.reduce_scatter(values.span(), parts, ReduceOp()).wait(); });
    expect(Collective::all_gather, parts, [&] { group.all_gather(values.span(), parts).wait(); });
    expect(Collective::broadcast, {}, [&] { group.broadcast(values.span(), ranks - 1).wait(); });
  });
}

TEST_CASE("some ranks' vectors may lie in the group's memory and others' not") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const std::size_t ranks = GENERATE(2, 3);
  run_ranks(world, ranks, [&](ProcessGroup& group) {
    for (const std::size_t count : {10, 100, 1000, 100'000}) {
      const Values<float> values(group, count, group.rank() % 2 == 0);
      values.fill(group.rank());
      group.all_reduce(values.span(), ReduceOp()).wait();
      for (std::size_t i = 0; i < count; ++i)
        require(values.span()[i] == static_cast<float>(expected_of(ReduceOp::Kind::sum, ranks, i)), "a wrong sum");
      group.barrier().wait();
    }
  });
}

TEST_CASE("ranks that call different things are told so") {
  const std::string world = GENERATE(from_range(ring_worlds()));
  const auto failure = [&](const std::function<void(ProcessGroup&)>& body) -> std::string {
    try {
      run_ranks(world, 3, body);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return error.what();
    }
    return "nothing was said";
  };
  CHECK_THAT(failure([](ProcessGroup& group) {
               std::vector<float> values(group.rank() == 1 ? 10 : 11);
               group.all_reduce(std::span(values), ReduceOp()).wait();
             }),
             Contains("all_reduce of 10 f32 (sum)") && Contains("all_reduce of 11 f32 (sum)") && Contains("rank 1"));
  CHECK_THAT(failure([](ProcessGroup& group) {
               std::vector<float> values(10);
               if (group.rank() == 2)
                 group.broadcast(std::span(values), 0).wait();
               else
                 group.all_reduce(std::span(values), ReduceOp()).wait();
             }),
             Contains("broadcast of 10 f32 from rank 0") && Contains("all_reduce of 10 f32 (sum)"));
  CHECK_THAT(failure([](ProcessGroup& group) {
               std::vector<float> values(3);
               group.all_gather(std::span(values), even_parts(3, 3)).wait();
               Parts parts{{{0, 1}}, {{1, 2}}, {{2, 3}}};
               if (group.rank() == 0) std::swap(parts[0], parts[1]);
               group.all_gather(std::span(values), parts).wait();
             }),
             Contains("#1") && Contains("with other parts"));
}

TEST_CASE("what has no meaning is a usage error") {
  run_ranks("shm", 1, [](ProcessGroup& group) {
    std::vector<std::int32_t> integers(1);
    std::vector<float> floats(1);
    const auto refused = [](const std::function<void()>& body) {
      try {
        body();
      } catch (const Error& error) {
        return error.kind() == ErrorKind::usage;
      }
      return false;
    };
    require(refused([&] { group.all_reduce(std::span(integers), ReduceOp::Kind::mean); }), "mean of integers");
    require(refused([&] { group.all_reduce(std::span(floats), ReduceOp::Kind::bit_and); }), "bits of floats");
    require(refused([&] { group.all_reduce(std::span(floats), ReduceOp::Kind::maxloc); }), "maxloc without index");
    require(refused([&] { group.broadcast(std::span(floats), 1); }), "a root that is not there");
    require(refused([&] { group.all_gather(std::span(floats), even_parts(1, 2)); }), "parts of another group");
  });
}

TEST_CASE("the help of --algorithm names every algorithm") {
  CHECK_THAT(options::at("algorithm").help, Contains(algorithm_names()));
}
