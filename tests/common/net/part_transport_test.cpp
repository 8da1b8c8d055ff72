// Ranks within a part of the model, and ranks in the job.
#include <chrono>

#include <catch2/catch.hpp>

#include <psring/common/net/part_transport.h>
#include <psring/tests/support/in_process_network.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using psring::test::error_of;

namespace {

const Moment kSoon = SystemClock().now() + std::chrono::seconds(60);

FrameHeader push_of(std::uint32_t unit) {
  FrameHeader header;
  header.type = FrameType::push;
  header.unit = unit;
  return header;
}

}  // namespace

TEST_CASE("a server and a worker of one part see each other by their ranks within it") {
  InProcessNetwork network;
  ByteLedger ledgers[3];
  const auto server = network.endpoint({Role::server, 3}, ledgers[0]);
  const auto first = network.endpoint({Role::server, 0}, ledgers[1]);
  const auto worker = network.endpoint({Role::worker, 5}, ledgers[2]);
  const auto of_server = make_part_transport(*server, Role::worker, {1, 2});
  const auto of_worker = make_part_transport(*worker, Role::server, {1, 2});

  of_worker->send({Role::server, 1}, push_of(7), {});  // server 3 of the job
  const auto pushed = of_server->receive(kSoon);
  REQUIRE(pushed);
  CHECK(pushed->header.sender() == Peer{Role::worker, 2});
  CHECK(pushed->header.unit == 7);
  of_server->send(pushed->header.sender(), push_of(8), {});
  const auto answered = of_worker->receive(kSoon);
  REQUIRE(answered);
  CHECK(answered->header.sender() == Peer{Role::server, 1});
  CHECK(answered->header.unit == 8);

  // Another role keeps its ranks: servers of all parts take verdicts together.
  of_server->send({Role::server, 0}, push_of(9), {});
  const auto verdict = first->receive(kSoon);
  REQUIRE(verdict);
  CHECK(verdict->header.sender() == Peer{Role::server, 3});
  first->send({Role::server, 3}, push_of(10), {});
  CHECK(of_server->receive(kSoon)->header.sender() == Peer{Role::server, 0});
}

TEST_CASE("a peer of another part is refused by its rank in the job") {
  InProcessNetwork network;
  ByteLedger ledgers[2];
  const auto server = network.endpoint({Role::server, 3}, ledgers[0]);
  const auto worker = network.endpoint({Role::worker, 4}, ledgers[1]);
  const auto of_server = make_part_transport(*server, Role::worker, {1, 2});
  worker->send({Role::server, 3}, push_of(0), {});
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { of_server->receive(kSoon); }),
             Catch::Contains("worker 4 has another part of the model"));
}

TEST_CASE("a job with one part has the ranks that it has") {
  const MeshPart part;
  for (const std::size_t rank : {0, 1, 7}) {
    CHECK(part.has(rank));
    CHECK(part.within(rank) == rank);
    CHECK(part.in_job(rank) == rank);
  }
}
