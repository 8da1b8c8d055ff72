// A folder that is removed, whatever ends the process, also while others write into it.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/guarded_folder.h>
#include <psring/common/proc/local_cluster.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;

namespace fs = std::filesystem;

namespace {

/// In a process of its own: writes files into a guarded folder, until a signal ends it.
[[noreturn]] void write_files(int started) {
  const GuardedFolder folder("guarded");
  const std::jthread writer([&] {
    for (int i = 0;; ++i) std::ofstream(folder.path() / std::to_string(i));
  });
  const std::jthread starter([&] {
    const SystemClock clock;
    while (true) try {
        const LocalCluster cluster(folder.path() / "logs", clock);
      } catch (const Error&) {  // the folder is gone
      }
  });
  [[maybe_unused]] const ssize_t written = ::write(started, "", 1);
  for (;;) ::pause();
}

}  // namespace

TEST_CASE("a folder that others write into is removed by a signal") {
  const test::TemporaryFolder folder;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  for (int round = 0; round < 30; ++round) {
    int started[2];
    REQUIRE(::pipe(started) == 0);
    const pid_t writer = ::fork();
    if (writer == 0) write_files(started[1]);
    char byte = 0;
    REQUIRE(::read(started[0], &byte, 1) == 1);
    ::kill(writer, SIGTERM);
    int status = 0;
    REQUIRE(::waitpid(writer, &status, 0) == writer);
    CHECK(WTERMSIG(status) == SIGTERM);
    CHECK(fs::is_empty(folder.path()));
    for (const int fd : started) ::close(fd);
  }
}
