// The engine of the C interface: several threads use the groups of one job, over every implementation of groups.
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/ring/process_group.h>
#include <psring/tests/support/ring_worlds.h>
#include <psring/worker/c/engine.h>
#include <psring/worker/c/messages.h>

using namespace psring;
using namespace psring::c;
using ring::ProcessGroup;
using ring::ReduceOp;

namespace {

/// Without the simulated network, which runs one thread of one rank at a time.
std::vector<std::string> worlds() {
  std::vector<std::string> names = test::ring_worlds();
  std::erase(names, "simulated");
  return names;
}

Moment in(double seconds) { return SystemClock().now() + from_seconds(seconds); }

std::shared_ptr<Flight> start(Engine& engine, const std::function<ring::Work()>& call) {
  return engine.start([&] {
    auto works = std::make_shared<Works>("test");
    works->add(call());
    return works;
  });
}

std::shared_ptr<Flight> sum(Engine& engine, ProcessGroup& group, std::vector<float>& values) {
  return start(engine, [&] { return group.all_reduce(std::span(values), ReduceOp::Kind::sum); });
}

void barrier(Engine& engine, ProcessGroup& group) {
  if (!engine.wait(*start(engine, [&] { return group.barrier(); }), in(60))) throw std::runtime_error("no barrier");
}

}  // namespace

TEST_CASE("threads reduce over groups of their own at the same time") {
  for (const std::string& world : worlds()) {
    INFO(world);
    test::run_ranks(world, 3, [&](ProcessGroup& group) {
      std::vector<std::unique_ptr<ProcessGroup>> groups;
      for (std::size_t t = 0; t < 3; ++t) groups.push_back(group.split(0, static_cast<std::uint32_t>(group.rank())));
      Engine engine(group, [] {});
      std::atomic<std::size_t> right = 0;
      {
        std::vector<std::jthread> threads;
        for (std::size_t t = 0; t < groups.size(); ++t)
          threads.emplace_back([&, t] {
            for (std::size_t step = 0; step < 50; ++step) {
              std::vector<float> values(1 + step * (1 + 40 * t), static_cast<float>(step + group.rank()));
              const auto flight = sum(engine, *groups[t], values);
              if (engine.wait(*flight, in(60)) && values.back() == static_cast<float>(3 * step + 3)) ++right;
            }
          });
      }
      if (right != 150) throw std::runtime_error(std::to_string(right) + " of 150 reductions are right");
      barrier(engine, group);
      engine.locked([&] { groups.clear(); });
    });
  }
}

/// Rank 0 of two: one thread waits for `leads`, this one for `follows`, which is complete first.
bool follower_returns(Engine& engine, ProcessGroup& leads, ProcessGroup& follows, std::atomic<int>& begun,
                      std::atomic<int>& returned) {
  const auto first = start(engine, [&] { return leads.barrier(); });
  const auto second = start(engine, [&] { return follows.barrier(); });
  const std::jthread leader([&] { engine.wait(*first, in(20)); });
  ++begun;
  begun.notify_all();
  const bool right = engine.wait(*second, in(10));
  ++returned;
  returned.notify_all();
  return right;
}

TEST_CASE("a thread whose operation is complete returns while another thread of its rank still waits") {
  for (const std::string& world : worlds()) {
    INFO(world);
    std::atomic<int> begun = 0;
    std::atomic<int> returned = 0;
    test::run_ranks(world, 2, [&](ProcessGroup& group) {
      const auto leads = group.split(0, static_cast<std::uint32_t>(group.rank()));
      const auto follows = group.split(0, static_cast<std::uint32_t>(group.rank()));
      Engine engine(group, [] {});
      bool right = true;
      std::shared_ptr<Flight> last;
      const auto finish = [&] { last = start(engine, [&] { return group.barrier(); }); };
      if (group.rank() == 1) finish();
      for (int round = 0; round < 5; ++round) {
        if (group.rank() == 0) {
          right = follower_returns(engine, *leads, *follows, begun, returned) && right;
        } else {
          begun.wait(round);
          if (engine.wait(*last, in(0.003))) throw std::runtime_error("complete without rank 0");  // its threads sleep
          barrier(engine, *follows);
          returned.wait(round);
          barrier(engine, *leads);
        }
      }
      if (group.rank() == 0) finish();
      if (!engine.wait(*last, in(60))) throw std::runtime_error("no barrier");
      if (!right) throw std::runtime_error("a thread with a complete operation did not return");
    });
  }
}

TEST_CASE("an operation goes on while its caller does something else") {
  for (const std::string& world : worlds()) {
    INFO(world);
    std::atomic<bool> told = false;
    test::run_ranks(world, 2, [&](ProcessGroup& group) {
      Engine engine(group, [] {});
      std::vector<float> values(100'000, 1);
      const auto flight = sum(engine, group, values);
      if (group.rank() == 0) told.wait(false);  // calls nothing until rank 1 says that it has the sum
      const bool complete = engine.wait(*flight, in(60));
      told = true;
      told.notify_all();
      if (!complete || values.back() != 2) throw std::runtime_error("no sum");
      barrier(engine, group);
    });
  }
}

TEST_CASE("a wait ends at its moment, and the operation goes on") {
  for (const std::string& world : worlds()) {
    INFO(world);
    std::atomic<bool> waited = false;
    test::run_ranks(world, 2, [&](ProcessGroup& group) {
      Engine engine(group, [] {});
      std::vector<float> values(10, 1);
      if (group.rank() == 1) waited.wait(false);
      const auto flight = sum(engine, group, values);
      if (group.rank() == 0) {
        const bool early = engine.test(*flight) || engine.wait(*flight, in(0.02)) || engine.wait(*flight, Moment{});
        waited = true;
        waited.notify_all();
        if (early) throw std::runtime_error("complete without the other rank");
      }
      if (!engine.wait(*flight, in(60)) || values[9] != 2) throw std::runtime_error("no sum");
      barrier(engine, group);
    });
  }
}

TEST_CASE("the error that ends the job reaches all operations, and later calls") {
  for (const std::string& world : worlds()) {
    INFO(world);
    test::run_ranks(world, 2, [&](ProcessGroup& group) {
      std::atomic<bool> lost = false;
      Engine engine(group, [&] {
        if (lost) fail(ErrorKind::peer_lost, "worker 1 is lost");
      });
      std::vector<float> values(10, 1);
      if (group.rank() == 1) return;
      const auto flight = sum(engine, group, values);
      const std::jthread later([&] { lost = true; });
      std::size_t errors = 0;
      for (int call = 0; call < 3; ++call) {
        try {
          if (call < 2)
            engine.wait(*flight, in(60));
          else
            sum(engine, group, values);
        } catch (const Error& error) {
          if (error.kind() == ErrorKind::peer_lost) ++errors;
        }
      }
      if (errors != 3) throw std::runtime_error("an error is missing");
    });
  }
}

TEST_CASE("messages are matched by their tags") {
  for (const std::string& world : worlds()) {
    INFO(world);
    test::run_ranks(world, 3, [&](ProcessGroup& group) {
      const auto messages = std::make_shared<Messages>(group.split(0, static_cast<std::uint32_t>(group.rank())));
      Engine engine(group, [] {});
      const auto wait = [&](const std::shared_ptr<Flight>& flight) {
        if (!engine.wait(*flight, in(60))) throw std::runtime_error("no message");
      };
      std::vector<std::vector<float>> vectors;
      for (const std::size_t count : {3, 0, 5000}) vectors.emplace_back(count, static_cast<float>(group.rank()));
      std::vector<std::shared_ptr<Flight>> flights;
      if (group.rank() > 0) {
        for (std::int64_t tag = 0; tag < 3; ++tag)
          flights.push_back(engine.start(
              [&] { return messages->send(std::span<const float>(vectors[static_cast<std::size_t>(tag)]), 0, tag); }));
        for (const auto& flight : flights) wait(flight);
      } else {
        const auto receive = [&](std::size_t tag, std::optional<std::size_t> from) {
          return engine.start(
              [&, from] { return messages->receive(std::span(vectors[tag]), from, static_cast<std::int64_t>(tag)); });
        };
        for (const std::size_t tag : {2, 0, 1}) {  // not in the order of the sends
          const auto any = receive(tag, std::nullopt);
          wait(any);
          const std::size_t source = static_cast<const Receive&>(*any).source;
          if (!vectors[tag].empty() && vectors[tag].back() != static_cast<float>(source))
            throw std::runtime_error("another message");
          wait(receive(tag, 3 - source));
          if (!vectors[tag].empty() && vectors[tag].back() != static_cast<float>(3 - source))
            throw std::runtime_error("another message");
        }
      }
      barrier(engine, group);
    });
  }
}
