#include <catch2/catch.hpp>

#include <psring/common/proc/role_processes.h>

using namespace psring::net;
using Exit = RoleProcesses::Exit;

namespace {

constexpr Peer kWorker{Role::worker, 0};
constexpr Peer kServer{Role::server, 0};

bool always(Peer) { return true; }

}  // namespace

TEST_CASE("an exit by itself is told once, and the place starts again when it is wanted") {
  RoleProcesses processes;
  processes.started({kServer, kWorker});
  CHECK(processes.running(kWorker));
  CHECK(processes.exited(kWorker, 101, false) == Exit::unexpected);
  CHECK(processes.exited(kWorker, 101, false) == Exit::repeated);
  CHECK(processes.has_ended(kWorker, 101));
  CHECK_FALSE(processes.has_ended(kWorker, 102));
  CHECK_FALSE(processes.end(kWorker));  // nothing runs there
  CHECK(processes.start(always).empty());
  processes.want(kWorker);
  CHECK(processes.any_wanted());
  CHECK(processes.start(always) == std::set<Peer>{kWorker});
  CHECK(processes.start(always).empty());
  CHECK(processes.running() == std::set<Peer>{kServer, kWorker});
}

TEST_CASE("a place whose process still runs starts again after that process has ended") {
  RoleProcesses processes;
  processes.started({kWorker});
  CHECK(processes.end(kWorker));
  processes.want(kWorker);
  CHECK(processes.start(always).empty());
  CHECK(processes.exited(kWorker, 7, false) == Exit::expected);
  CHECK_FALSE(processes.ending(kWorker));
  CHECK(processes.start(always) == std::set<Peer>{kWorker});
}

TEST_CASE("an agent that finds no process to end reports an end, but no exit of its own") {
  RoleProcesses processes;
  processes.started({kWorker});
  CHECK(processes.exited(kWorker, 0, true) == Exit::repeated);
  CHECK(processes.running(kWorker));
  CHECK(processes.end(kWorker));
  CHECK(processes.exited(kWorker, 0, true) == Exit::expected);
  CHECK_FALSE(processes.running(kWorker));
}

TEST_CASE("a place waits until the caller allows its start, and is not started once it was given up") {
  RoleProcesses processes;
  processes.want(kServer);
  processes.want(kWorker);
  CHECK(processes.start([](Peer place) { return place.role == Role::worker; }) == std::set<Peer>{kWorker});
  CHECK(processes.wanted(kServer));
  processes.give_up(kServer);
  CHECK(processes.start(always).empty());
  processes.forget(kWorker);  // its host was lost
  CHECK_FALSE(processes.running(kWorker));
  CHECK(processes.exited(kWorker, 9, false) == Exit::repeated);
}
