// A process that saves is killed at any of its system calls: what it had committed before is there, and loads.
#include <csignal>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>

#include <catch2/catch.hpp>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/tests/support/checkpoints.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::optim;

namespace {

constexpr std::size_t kKeep = 2;

Layout small_layout() {
  return make_layout({{"u", {{{"a", {700}, {}}, 0, 0}, {{"b", {3, 5}, {}}, 1, 0}}}, {"v", {{{"c", {300}, {}}, 2, 0}}}},
                     3);
}

/// Continues from the checkpoints that it finds, and saves two more. Writes each step to `told` once its checkpoint is
/// complete.
void save_two(const std::string& path, int told) {
  const CheckpointFolder folder(path);
  const auto found = folder.complete();
  const std::uint64_t first = found.empty() ? 0 : found.back().step;
  folder.create();
  folder.clear(CheckpointFolder::Leftovers::all);
  for (std::uint64_t step = first + 1; step <= first + 2; ++step) {
    test::save_checkpoint(folder, small_layout(), step);
    if (::write(told, &step, sizeof step) != sizeof step) ::_exit(3);
    folder.keep(kKeep);
  }
}

struct Killed {
  std::size_t stops = 0;        ///< before and after each system call
  bool ended = false;           ///< by itself, before it was killed
  std::uint64_t last_told = 0;  ///< 0: none
};

/// Runs save_two in a process that is killed at its `last`-th stop. Nothing where the system does not let us trace.
std::optional<Killed> run_until(const std::string& path, std::size_t last) {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(77);
    ::raise(SIGSTOP);
    try {
      save_two(path, pipe[1]);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      ::_exit(3);
    }
    ::_exit(0);
  }
  ::close(pipe[1]);
  Killed result;
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  const bool traced = WIFSTOPPED(status);
  while (WIFSTOPPED(status)) {
    if (++result.stops > last) {
      ::kill(child, SIGKILL);
    } else {
      ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    }
    REQUIRE(::waitpid(child, &status, 0) == child);
  }
  result.ended = WIFEXITED(status);
  if (result.ended && traced) REQUIRE(WEXITSTATUS(status) == 0);
  for (std::uint64_t step = 0; ::read(pipe[0], &step, sizeof step) == sizeof step;) result.last_told = step;
  ::close(pipe[0]);
  if (!traced) return std::nullopt;
  return result;
}

}  // namespace

TEST_CASE("a hundred kills, each at another moment of a save, each of a run that continues the one before") {
  const test::TemporaryFolder temporary;
  const std::string path = temporary.file("checkpoints");
  const auto whole = run_until(temporary.file("other"), static_cast<std::size_t>(-1));
  if (!whole) {
    fmt::print("SKIPPED: this system does not let a process trace its child\n");
    return;
  }
  REQUIRE(whole->ended);
  REQUIRE(whole->last_told == 2);
  std::mt19937_64 random(20240607);
  std::uint64_t newest = 0;
  std::size_t kills = 0;
  for (int i = 0; i < 100; ++i) {
    const std::size_t at = 1 + random() % (whole->stops - 1);
    CAPTURE(i, at, newest);
    const Killed killed = run_until(path, at).value();
    if (!killed.ended) ++kills;
    newest = std::max(newest, killed.last_told);
    const CheckpointFolder folder(path);
    const auto found = folder.complete();
    if (newest == 0 && found.empty()) continue;
    // All checkpoints that were told exist. One more may exist: complete, but its process was killed before it told.
    const Checkpoint checkpoint(find_checkpoint(path));
    REQUIRE((checkpoint.step() == newest || checkpoint.step() == newest + 1));
    REQUIRE(test::holds(checkpoint, small_layout(), checkpoint.step()));
    newest = checkpoint.step();
    for (const auto& entry : found) REQUIRE(test::holds(Checkpoint(entry.path), small_layout(), entry.step));
  }
  CHECK(kills > 90);   // what is prepared or kept may take fewer calls than in the first run
  CHECK(newest > 30);  // they get on, too
  // Nothing is left of those that did not get to the end.
  REQUIRE(run_until(path, static_cast<std::size_t>(-1)).value().last_told == newest + 2);
  const std::filesystem::directory_iterator left(path);
  CHECK(std::distance(begin(left), end(left)) == kKeep);
}
