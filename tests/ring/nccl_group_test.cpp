// Groups over NCCL, as the host plays it (support/cuda_on_host): ranks are threads, each with a device of its own.
#include <atomic>
#include <cmath>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/elements.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/ring/nccl_group.h>
#include <psring/tests/support/shm_groups.h>

using namespace psring;
using namespace psring::ring;

namespace {

struct Rank {
  ProcessGroup& group;
  Device& device;
  ByteLedger& bytes;
  MemoryLedger memory;

  std::size_t index() const { return group.rank(); }
  Buffer buffer(std::size_t elements, DType type) {
    return {elements * size_bytes(type), Category::gradients, memory, device};
  }
};

/// `body` in a thread a rank; each gives the line of the error that it ended with, "" without.
std::vector<std::string> run_ranks(std::size_t ranks, const std::function<void(Rank&)>& body,
                                   const GroupOptions& options = {}) {
  GroupOptions of_host = options;
  of_host.op_timeout = {};  // a short one is for the device's operations, not for connecting the ranks
  auto hosts = make_shm_groups(ranks, kShmArenaBytes, of_host);
  std::vector<std::string> errors(ranks);
  std::latch all_ended(static_cast<std::ptrdiff_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        try {
          const std::unique_ptr<Device> device = make_cuda_device(0);
          ByteLedger bytes;
          NcclOptions of_nccl{.group = options, .register_from = 1};
          of_nccl.group.ledger = &bytes;
          const auto group = make_nccl_group(std::move(hosts[r]), *device, of_nccl);
          Rank rank{*group, *device, bytes, {}};
          try {
            body(rank);
          } catch (const Error& error) {
            errors[r] = error.what();
          }
          all_ended.arrive_and_wait();
        } catch (const Error& error) {
          errors[r] = error.what();
          all_ended.arrive_and_wait();
        }
      });
  }
  return errors;
}

void run(std::size_t ranks, const std::function<void(Rank&)>& body, const GroupOptions& options = {}) {
  for (const std::string& error : run_ranks(ranks, body, options)) CHECK(error == "");
}

/// Small whole numbers, so that every order of a sum is exact, in every type.
float value(std::size_t rank, std::size_t i) { return static_cast<float>((rank * 3 + i) % 7) - 2; }

void fill(Elements to, std::size_t rank) {
  std::vector<std::byte> bytes(to.size_bytes());
  const Elements host(bytes.data(), to.size(), to.type());
  std::vector<float> values(to.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank, i);
  narrow(values, host);
  copy(host, to);
}

std::vector<float> floats(ConstElements of) {
  std::vector<float> values(of.size());
  if (!values.empty()) widen(OnHost(of).values(), values);
  return values;
}

float sum(std::size_t ranks, std::size_t i) {
  float total = 0;
  for (std::size_t r = 0; r < ranks; ++r) total += value(r, i);
  return total;
}

/// CHECK belongs to one thread.
void require(bool holds, const char* what, std::size_t i) {
  if (!holds) fail(ErrorKind::bug, "{} is wrong at {}", what, i);
}

constexpr std::size_t kCounts[] = {1, 3, 1000, 70'001};

}  // namespace

TEST_CASE("an all-reduce over NCCL") {
  for (const std::size_t ranks : {1, 2, 3, 5})
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      run(ranks, [&](Rank& rank) {
        for (const std::size_t count : kCounts) {
          Buffer buffer = rank.buffer(count, type);
          const Elements data = buffer.elements(type);
          fill(data, rank.index());
          rank.group.all_reduce(data, ReduceOp::Kind::sum).wait();
          const std::vector<float> got = floats(data);
          for (std::size_t i = 0; i < count; ++i) require(got[i] == sum(ranks, i), "a sum", i);
          fill(data, rank.index());
          rank.group.all_reduce(data, ReduceOp::Kind::mean).wait();
          const std::vector<float> mean = floats(data);
          const float tolerance = type == DType::f32 ? 1e-6F : 2e-2F;
          for (std::size_t i = 0; i < count; ++i)
            require(std::abs(mean[i] - sum(ranks, i) / static_cast<float>(ranks)) <= tolerance, "a mean", i);
        }
        rank.group.barrier().wait();
      });
}

TEST_CASE("parts are scattered and gathered over NCCL, lying together or not") {
  for (const std::size_t ranks : {1, 2, 3}) {
    const auto check_parts = [&](const Parts& parts, std::size_t count) {
      run(ranks, [&](Rank& rank) {
        Buffer buffer = rank.buffer(count, DType::f32);
        const Elements data = buffer.elements(DType::f32);
        fill(data, rank.index());
        rank.group.reduce_scatter(data, parts, ReduceOp::Kind::sum).wait();
        std::vector<float> got = floats(data);
        for (const Range range : parts[rank.index()])
          for (std::size_t i = range.begin; i < range.end; ++i) require(got[i] == sum(ranks, i), "a part", i);
        rank.group.all_gather(data, parts).wait();
        got = floats(data);
        for (const auto& ranges : parts)
          for (const Range range : ranges)
            for (std::size_t i = range.begin; i < range.end; ++i)
              require(got[i] == sum(ranks, i), "what is gathered", i);
        const Moved moved = rank.group.moved();
        Cost predicted = rank.group.predict(Collective::reduce_scatter, count, {}, parts);
        const Cost gathered = rank.group.predict(Collective::all_gather, count, {}, parts);
        require(moved.sent >= predicted.sent + gathered.sent, "what was sent", 0);
        require(rank.bytes.total(ByteLedger::Direction::sent, "reduce_scatter").payload == predicted.sent, "counted",
                0);
        require(rank.bytes.total(ByteLedger::Direction::received, "all_gather").payload == gathered.received, "counted",
                1);
        rank.group.barrier().wait();
      });
    };
    Parts even(ranks);
    for (const std::size_t unit : {0, 1})  // as the units of a bucket
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::size_t begin = unit * 512 * ranks + r * 512;
        even[r].push_back({begin, begin + 512});
      }
    check_parts(even, 1024 * ranks);
    check_parts(even_parts(1001, ranks), 1001);
    Parts reversed = even_parts(900, ranks);
    std::reverse(reversed.begin(), reversed.end());
    check_parts(reversed, 900);
    Parts to_first(ranks);
    to_first[0] = {{0, 100}, {300, 400}};
    check_parts(to_first, 400);
  }
}

TEST_CASE("bytes of a ring are what is counted") {
  run(4, [](Rank& rank) {
    Buffer buffer = rank.buffer(4096, DType::f32);
    rank.group.all_reduce(buffer.elements(DType::f32), ReduceOp::Kind::sum).wait();
    require(rank.bytes.total(ByteLedger::Direction::sent, "all_reduce").payload == 2 * 3 * 4096, "what was sent", 0);
    require(rank.bytes.total(ByteLedger::Direction::received, "all_reduce").payload == 2 * 3 * 4096, "received", 0);
    rank.group.barrier().wait();
  });
}

TEST_CASE("operations are ordered with the device's queue, and the host waits for neither") {
  constexpr std::size_t kElements = 5000;
  run(3, [](Rank& rank) {
    Buffer first = rank.buffer(kElements, DType::f32);
    Buffer second = rank.buffer(kElements, DType::f32);
    const Elements a = first.elements(DType::f32);
    const Elements b = second.elements(DType::f32);
    fill(a, 0);
    for (int i = 0; i < 40; ++i) {
      multiply(a, 0.5F);  // what is reduced is what was computed before
      Work reduced = rank.group.all_reduce(a, ReduceOp::Kind::sum);
      copy(ConstElements(b), b);  // computed meanwhile
      reduced.wait();
      copy(ConstElements(a), b);  // and what is computed after it sees the sum
      multiply(a, 2.0F / 3.0F);
      Work again = rank.group.all_reduce(b, ReduceOp::Kind::mean);
      again.wait();
    }
    const std::vector<float> got = floats(a);
    const std::vector<float> sums = floats(b);
    for (std::size_t i = 0; i < kElements; ++i) {
      require(std::abs(got[i] - value(0, i)) < 1e-4F, "a value", i);
      require(std::abs(sums[i] - 1.5F * value(0, i)) < 1e-4F, "a sum", i);
    }
    rank.group.barrier().wait();
  });
}

TEST_CASE("how long a device stands still for others is known") {
  std::latch first_waits(1);
  run(2, [&](Rank& rank) {
    Buffer buffer = rank.buffer(1000, DType::f32);
    const bool first = rank.index() == 0;
    if (!first) {
      first_waits.wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    rank.group.all_reduce(buffer.elements(DType::f32), ReduceOp::Kind::sum).wait();
    if (first) first_waits.count_down();
    rank.device.wait(rank.device.mark());
    require(!first || rank.device.stalled() > Nanoseconds{0}, "the time", 0);
    rank.group.barrier().wait();
  });
}

TEST_CASE("broadcasts and messages over NCCL") {
  run(3, [](Rank& rank) {
    const std::size_t n = rank.group.size();
    Buffer buffer = rank.buffer(300, DType::bf16);
    Buffer from_others = rank.buffer(300 * n, DType::bf16);
    const Elements data = buffer.elements(DType::bf16);
    for (std::size_t root = 0; root < n; ++root) {
      fill(data, rank.index());
      rank.group.broadcast(data, root).wait();
      const std::vector<float> got = floats(data);
      for (std::size_t i = 0; i < 300; ++i) require(got[i] == value(root, i), "what the root has", i);
    }
    // All to all: everybody receives first, which would be for ever if messages left one by one.
    Buffer to_others = rank.buffer(300, DType::bf16);
    const Elements sent = to_others.elements(DType::bf16);
    fill(sent, rank.index());
    std::vector<Work> works;
    for (std::size_t other = 0; other < n; ++other)
      if (other != rank.index())
        works.push_back(rank.group.recv(from_others.elements(DType::bf16).subspan(300 * other, 300), other));
    for (std::size_t other = 0; other < n; ++other)
      if (other != rank.index()) works.push_back(rank.group.send(ConstElements(sent), other));
    for (Work& work : works) work.wait();
    const std::vector<float> got = floats(from_others.elements(DType::bf16));
    for (std::size_t other = 0; other < n; ++other)
      for (std::size_t i = 0; i < 300 && other != rank.index(); ++i)
        require(got[300 * other + i] == value(other, i), "a message", i);
    rank.group.barrier().wait();
  });
}

TEST_CASE("what lies in the host's memory does not go through NCCL") {
  run(2, [](Rank& rank) {
    std::vector<float> values{static_cast<float>(rank.index()), 1};
    rank.group.all_reduce(std::span(values), ReduceOp::Kind::sum).wait();
    require(values == std::vector<float>{1, 2}, "a sum on the host", 0);
    rank.group.barrier().wait();
  });
}

TEST_CASE("groups are split, over NCCL, too") {
  run(4, [](Rank& rank) {
    const auto half = rank.group.split(static_cast<std::uint32_t>(rank.index() % 2), 0);
    Buffer buffer = rank.buffer(1000, DType::f32);
    const Elements data = buffer.elements(DType::f32);
    fill(data, rank.index());
    half->all_reduce(data, ReduceOp::Kind::sum).wait();
    const std::vector<float> got = floats(data);
    const std::size_t first = rank.index() % 2;
    for (std::size_t i = 0; i < 1000; ++i) require(got[i] == value(first, i) + value(first + 2, i), "a half's sum", i);
    for (const auto& [key, count] : rank.bytes.snapshot())
      require(key.peer == "worker " + std::to_string((rank.index() + 2) % 4), "the peer that bytes are counted with",
              0);
    half->barrier().wait();
    rank.group.barrier().wait();
  });
}

TEST_CASE("where a rank is lost, the device's queue goes on, and everybody hears why") {
  std::atomic<bool> lost{false};
  std::latch under_way(2);
  GroupOptions options;
  options.check = [&] {
    if (lost) fail(ErrorKind::peer_lost, "worker 1 (here:7) was ended by signal 9 (Killed)");
  };
  const auto errors = run_ranks(
      3,
      [&](Rank& rank) {
        Buffer buffer = rank.buffer(1000, DType::f32);
        const Elements data = buffer.elements(DType::f32);
        rank.group.all_reduce(data, ReduceOp::Kind::sum).wait();
        if (rank.index() == 1) {
          under_way.wait();
          lost = true;
          return;
        }
        Work never = rank.group.all_reduce(data, ReduceOp::Kind::sum);
        under_way.count_down();
        never.wait();  // the host goes on
        multiply(data, 2);
        try {
          rank.device.wait(rank.device.mark());
          require(false, "a wait for what never comes", 0);
        } catch (const Error& error) {
          require(error.kind() == ErrorKind::peer_lost, "the kind", 0);
        }
        CHECK_THROWS_AS(never.done(), Error);
        CHECK_THROWS_AS(rank.group.barrier().wait(), Error);
        rank.group.all_reduce(data, ReduceOp::Kind::sum);  // throws the same
      },
      options);
  CHECK(errors[1] == "");
  CHECK_THAT(errors[0], Catch::Contains("[ring] rank 0: all_reduce #") &&
                            Catch::Contains("(3.9 KiB): worker 1 (here:7) was ended"));
  CHECK_THAT(errors[2], Catch::Contains("[ring] rank 2: all_reduce #") &&
                            Catch::Contains("(3.9 KiB): worker 1 (here:7) was ended"));
}

TEST_CASE("a lost rank ends what several groups have under way, each of which waits for another") {
  std::atomic<bool> lost{false};
  std::atomic<int> asked{0};
  std::latch all_queued(3);
  GroupOptions options;
  options.check = [&] {  // ranks hear it at different times
    if (lost && asked++ % 8 == 7) fail(ErrorKind::peer_lost, "worker 3 is lost");
  };
  const auto errors = run_ranks(
      4,
      [&](Rank& rank) {
        const auto own = rank.group.split(static_cast<std::uint32_t>(rank.index() / 2), 0);
        const auto replicas = rank.group.split(static_cast<std::uint32_t>(rank.index() % 2), 0);
        Buffer buffer = rank.buffer(1000, DType::f32);
        const Elements data = buffer.elements(DType::f32);
        if (rank.index() == 3) {
          all_queued.wait();
          lost = true;
          return;
        }
        for (int i = 0; i < 3; ++i) {
          own->all_reduce(data, ReduceOp::Kind::sum).wait();
          multiply(data, 0.5F);
          replicas->all_reduce(data, ReduceOp::Kind::sum).wait();
        }
        all_queued.count_down();
        rank.device.wait(rank.device.mark());
      },
      options);
  for (const std::size_t r : {0, 1, 2}) CHECK_THAT(errors[r], Catch::Contains("worker 3 is lost"));
}

TEST_CASE("a rank that leaves in the middle gives up what it has under way") {
  const auto errors = run_ranks(2, [&](Rank& rank) {
    Buffer buffer = rank.buffer(1000, DType::f32);
    if (rank.index() == 1) return;
    rank.group.all_reduce(buffer.elements(DType::f32), ReduceOp::Kind::sum);
    fail(ErrorKind::data, "something else");
  });
  CHECK(errors[0] == "something else");
}

TEST_CASE("an operation that takes longer than it may is an error") {
  GroupOptions options;
  options.op_timeout = std::chrono::milliseconds(200);
  const auto errors = run_ranks(
      2,
      [&](Rank& rank) {
        if (rank.index() == 1) return;
        Buffer buffer = rank.buffer(1 << 20, DType::f32);
        rank.group.all_reduce(buffer.elements(DType::f32), ReduceOp::Kind::sum).wait();
        rank.device.wait(rank.device.mark());
      },
      options);
  CHECK_THAT(errors[0], Catch::Contains("[ring] rank 0: all_reduce #0 (4.0 MiB): not complete after 0.2 s"));
}
