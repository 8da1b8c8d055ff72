#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/coordinator/meeting.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using Catch::Contains;

namespace fs = std::filesystem;

namespace {

const MeetingPoint kPoint{.endpoint = "10.0.0.1:7000", .key = "abc\n", .run_folder = "/runs/a \"b\"", .status = 0};

fs::perms mode_of(const fs::path& path) { return fs::symlink_status(path).permissions(); }

}  // namespace

TEST_CASE("a task reads the point once task 0 has published it, and nothing remains") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.file("meet");
  {
    MeetingFolder leader(path, "slurm-1.0-0");
    const MeetingFolder follower(path, "slurm-1.0-0");
    const MeetingFolder stranger(path, "slurm-1.0-1");
    CHECK_FALSE(follower.look());
    leader.publish(kPoint);
    const auto point = follower.look();
    REQUIRE(point);
    CHECK(point->endpoint == kPoint.endpoint);
    CHECK(point->key == kPoint.key);
    CHECK(point->run_folder == kPoint.run_folder);
    CHECK_FALSE(stranger.look());
    CHECK(mode_of(path) == fs::perms::owner_all);
    CHECK(mode_of(path / "slurm-1.0-0") == (fs::perms::owner_read | fs::perms::owner_write));
  }
  CHECK(fs::is_empty(path));
}

TEST_CASE("task 0 learns which tasks have read the point") {
  const test::TemporaryFolder folder;
  MeetingFolder leader(folder.file("meet"), "a");
  const MeetingFolder follower(folder.file("meet"), "a");
  leader.publish({.status = 2});
  CHECK(follower.look()->status == 2);
  CHECK_FALSE(leader.all_acknowledged(3));
  follower.acknowledge(2);
  CHECK_FALSE(leader.all_acknowledged(3));
  follower.acknowledge(1);
  CHECK(leader.all_acknowledged(3));
}

TEST_CASE("a file that an earlier job has left is not overwritten") {
  const test::TemporaryFolder folder;
  MeetingFolder leader(folder.file("meet"), "a");
  leader.publish(kPoint);
  MeetingFolder other(folder.file("meet"), "a");
  CHECK_THROWS_WITH(other.publish(kPoint), Contains("meet/a: exists already"));
  CHECK(other.look());
}

TEST_CASE("a folder or file that other users could use is refused") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.file("meet");
  fs::create_directory(path);
  fs::permissions(path, fs::perms(0755));
  CHECK_THROWS_WITH(MeetingFolder(path, "a"), Contains("run chmod 700"));
  fs::permissions(path, fs::perms(0700));
  const MeetingFolder follower(path, "a");

  std::ofstream(path / "a") << "{\"endpoint\":\"10.0.0.9:1\"}";
  fs::permissions(path / "a", fs::perms(0644));
  CHECK_THROWS_WITH(follower.look(), Contains("meet/a: other users can use it; run chmod 600"));
  fs::permissions(path / "a", fs::perms(0600));
  CHECK(follower.look());
  if (::geteuid() == 0) {
    REQUIRE(::chown((path / "a").c_str(), 4711, 4711) == 0);
    CHECK_THROWS_WITH(follower.look(), Contains("meet/a: belongs to another user"));
    REQUIRE(::chown(path.c_str(), 4711, 4711) == 0);
    CHECK_THROWS_WITH(follower.look(), Contains("meet: belongs to another user"));
    CHECK_THROWS_WITH(MeetingFolder(path, "a"), Contains("meet: belongs to another user"));
  }
}

TEST_CASE("links, pipes and folders are not read as a point") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.file("meet");
  const MeetingFolder follower(path, "a");
  std::ofstream(path / "real") << "{\"endpoint\":\"10.0.0.9:1\"}";
  fs::permissions(path / "real", fs::perms(0600));
  fs::create_symlink("real", path / "a");
  CHECK_THROWS_WITH(follower.look(), Contains("meet/a"));
  fs::remove(path / "a");
  REQUIRE(::mkfifo((path / "a").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(follower.look(), Contains("meet/a: is no file"));
  fs::remove(path / "a");
  fs::create_directory_symlink("meet", folder.file("link"));
  CHECK_THROWS_WITH(MeetingFolder(folder.file("link"), "a"), Contains("link"));
}

TEST_CASE("a file that is no point is refused") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.file("meet");
  const MeetingFolder follower(path, "a");
  for (const char* const text : {"", "x", "[]", "{}", "{\"endpoint\":1}", "{\"endpoint\":\"a\",\"status\":\"b\"}"}) {
    INFO(text);
    std::ofstream(path / "a") << text;
    fs::permissions(path / "a", fs::perms(0600));
    CHECK_THROWS_WITH(follower.look(), Contains("meet/a: was not written by task 0"));
  }
}
