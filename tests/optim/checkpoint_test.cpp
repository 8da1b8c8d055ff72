// Tests the contents of checkpoints under any new cut, and the errors of damaged checkpoints.
#include <csignal>
#include <cstring>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/system/folder_lock.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/checkpoints.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;
using test::saved_layout;

namespace fs = std::filesystem;

namespace {

/// A folder with whole checkpoints of these steps, of `owners`.
class Saved {
 public:
  explicit Saved(const std::vector<std::uint64_t>& steps, std::size_t owners = 2) : folder_(path()) {
    folder_.create();
    for (const std::uint64_t step : steps) test::save_checkpoint(folder_, saved_layout(owners), step);
  }
  fs::path path() const { return temporary_.file("checkpoints"); }
  fs::path of(std::uint64_t step) const { return path() / fmt::format("step-{:08}", step); }
  const CheckpointFolder& folder() const { return folder_; }

 private:
  const test::TemporaryFolder temporary_;
  const CheckpointFolder folder_;
};

void change(const fs::path& file, const std::function<void(std::string&)>& how) {
  std::string bytes = test::read_file(file.string());
  how(bytes);
  test::write_file(file.string(), bytes);
}

std::string damage(const fs::path& given) {
  return error_of(ErrorKind::data, [&] { find_checkpoint(given); });
}

}  // namespace

TEST_CASE("what some owners saved, any other number of them reads, in other units") {
  const auto saved_by = GENERATE(values<std::size_t>({1, 2, 3, 5}));
  const Saved saved({7}, saved_by);
  const Checkpoint checkpoint(saved.of(7));
  CHECK(checkpoint.manifest().facts == std::map<std::string, std::string>{{"model", "a \"b\""}});
  CHECK(checkpoint.manifest().scalars == std::map<std::string, double>{{"loss_scale", 0.1}});  // to the bit
  checkpoint.verify();
  for (const std::size_t owners : {1, 2, 3, 4, 7})
    for (const bool one_unit : {true, false}) {
      CAPTURE(saved_by, owners, one_unit);
      CHECK(test::holds(checkpoint, saved_layout(owners, one_unit), 7));
    }
  CHECK_FALSE(test::holds(checkpoint, saved_layout(2), 8));
}

TEST_CASE("the newest complete one is found, however it is asked for") {
  const Saved saved({9, 10, 200});
  fs::create_directories(saved.path() / "step-00000300.partial");
  fs::create_directories(saved.path() / "step-00000400");  // its manifest never came
  test::write_file((saved.path() / "step-x").string(), "");
  CHECK(find_checkpoint(saved.path()) == fs::canonical(saved.of(200)));
  CHECK(find_checkpoint(saved.of(9)) == fs::canonical(saved.of(9)));
  saved.folder().clear(CheckpointFolder::Leftovers::all);
  CHECK_FALSE(fs::exists(saved.path() / "step-00000300.partial"));
  CHECK(damage(saved.path() / "step-00000400") ==
        (saved.path() / "step-00000400").string() + ": the folder has no complete checkpoint");
  CHECK(damage(saved.path() / "nothing") == (saved.path() / "nothing").string() + ": no such folder");
  CHECK(damage(saved.path() / "step-x") == (saved.path() / "step-x").string() + ": is a file, not a folder");
}

TEST_CASE("the oldest go") {
  const Saved saved({1, 2, 3, 4});
  saved.folder().keep(5);
  CHECK(saved.folder().complete().size() == 4);
  saved.folder().keep(2);
  const auto left = saved.folder().complete();
  REQUIRE(left.size() == 2);
  CHECK(left[0].step == 3);
  CHECK(left[1].step == 4);
  CHECK(std::distance(fs::directory_iterator(saved.path()), fs::directory_iterator()) == 2);
}

TEST_CASE("the checkpoint in use stays, however old it is") {
  const Saved saved({1, 2, 3, 4});
  fs::create_directory_symlink(saved.path(), saved.path().string() + "-link");
  const fs::path in_use = saved.path().string() + "-link/step-00000002";
  saved.folder().keep(1, in_use);
  const auto left = saved.folder().complete();
  REQUIRE(left.size() == 2);
  CHECK(left[0].step == 2);
  CHECK(left[1].step == 4);
  saved.folder().keep(1, saved.path() / "step-00000099");
  CHECK(saved.folder().complete().size() == 1);
}

TEST_CASE("two runs that save into one folder do not mix their shards") {
  const test::TemporaryFolder temporary;
  const fs::path path = temporary.file("checkpoints");
  const CheckpointFolder first(path, "a");
  const CheckpointFolder second(path, "b");
  const Layout layout = saved_layout(2);
  first.create();
  for (const auto& [folder, run] : {std::pair(&first, "a"), std::pair(&second, "b")})
    for (std::size_t owner = 0; owner < layout.owners; ++owner) test::save_share(folder->aside(1), layout, owner, 1);
  Manifest manifest = test::manifest_of(layout, 1);
  manifest.run = "a";
  write_manifest(first.aside(1), manifest);
  manifest.run = "b";
  write_manifest(second.aside(1), manifest);
  first.commit(1);
  CHECK_THAT(error_of(ErrorKind::data, [&] { second.commit(1); }), Contains("step-00000001: exists already"));
  CHECK(run_of(path / "step-00000001") == "a");
  CHECK(first.has_own(1));
  CHECK_FALSE(second.has_own(1));
  CHECK(first.newest_own()->step == 1);
  CHECK_FALSE(second.newest_own());
  CHECK_FALSE(first.newer_of_another_run(0));
  CHECK(second.newer_of_another_run(0)->step == 1);
  CHECK_FALSE(second.newer_of_another_run(1));
  first.clear(CheckpointFolder::Leftovers::own);  // the other's stays
  second.aside(2);
  first.aside(2);
  const auto entries = [&] { return std::distance(fs::directory_iterator(path), fs::directory_iterator()); };
  CHECK(entries() == 4);
  first.clear(CheckpointFolder::Leftovers::own);
  CHECK(entries() == 3);
  first.clear(CheckpointFolder::Leftovers::all);
  CHECK(entries() == 1);
}

TEST_CASE("a folder's lock has one holder") {
  const test::TemporaryFolder temporary;
  const auto take = [&] { return FolderLock(temporary.path(), SystemClock().now()); };
  {
    const FolderLock held = take();
    REQUIRE(held.outcome() == FolderLock::Outcome::taken);
    CHECK(take().outcome() == FolderLock::Outcome::in_use);
    std::size_t checks = 0;
    const auto end = [&] {
      if (++checks == 3) fail(ErrorKind::peer_lost, "enough");
    };
    error_of(ErrorKind::peer_lost, [&] { FolderLock(temporary.path(), Deadline(kNever, end)); });
  }
  CHECK(take().outcome() == FolderLock::Outcome::taken);
  CHECK_THAT(error_of(ErrorKind::data, [&] { FolderLock(temporary.file("none"), kNever); }), Contains("none: cannot"));
}

TEST_CASE("a lock ends with its holder, though a process that was forked from it lives on") {
  const test::TemporaryFolder temporary;
  const auto take = [&] { return FolderLock(temporary.path(), SystemClock().now()).outcome(); };
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const FolderLock held(temporary.path(), SystemClock().now());
    const pid_t child = ::fork();
    if (child == 0) {
      if (::write(ends[1], "c", 1) == 1) ::pause();
      ::_exit(0);
    }
    char ready = 0;
    const bool still_held = ::read(ends[0], &ready, 1) == 1 && take() == FolderLock::Outcome::in_use;
    ::_exit(::write(ends[1], &child, sizeof child) == sizeof child && still_held ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(holder, &status, 0) == holder);
  pid_t child = -1;
  REQUIRE(::read(ends[0], &child, sizeof child) == sizeof child);
  CHECK(status == 0);
  CHECK(::kill(child, 0) == 0);
  CHECK(take() == FolderLock::Outcome::taken);
  ::kill(child, SIGKILL);
  for (const int end : ends) ::close(end);
}

TEST_CASE("any flipped bit is found, and the line names the file and an older one that is whole") {
  const Saved saved({1, 2});
  for (const char* name : {"server-0.shard", "server-1.shard", "manifest.json"}) {
    const fs::path file = saved.of(2) / name;
    const std::string bytes = test::read_file(file.string());
    for (std::size_t i = 0; i <= 40; ++i) {
      const std::size_t at = i * (bytes.size() - 1) / 40;
      CAPTURE(name, at, bytes.size());
      change(file, [&](std::string& b) { b[at] = static_cast<char>(b[at] ^ (1 << (at % 8))); });
      CHECK_THAT(damage(saved.path()), Contains(file.string()) && Contains("damaged") &&
                                           Contains(saved.of(1).string() + " is older and complete"));
      test::write_file(file.string(), bytes);
    }
  }
  CHECK(find_checkpoint(saved.path()) == fs::canonical(saved.of(2)));
}

TEST_CASE("what is cut short, swapped or gone is found") {
  const Saved saved({1, 2});
  const fs::path file = saved.of(2) / "server-1.shard";
  const auto check_damage = [&] {
    CHECK_THAT(damage(saved.of(2)),
               Contains(file.string()) && Contains(saved.of(1).string() + " is older and complete"));
  };
  const std::size_t size = fs::file_size(file);
  for (const std::size_t left : {size - 1, size - 16, size / 2, std::size_t{17}, std::size_t{1}, std::size_t{0}}) {
    fs::resize_file(file, left);
    CAPTURE(left);
    check_damage();
  }
  SECTION("longer") {
    change(file, [](std::string& b) { b += "more"; });
  }
  SECTION("another step's") {
    fs::copy_file(saved.of(1) / "server-1.shard", file, fs::copy_options::overwrite_existing);
  }
  SECTION("another owner's") {
    fs::copy_file(saved.of(2) / "server-0.shard", file, fs::copy_options::overwrite_existing);
  }
  SECTION("none") { fs::remove(file); }
  check_damage();
  change(saved.of(1) / "manifest.json", [](std::string& b) { b.resize(b.size() / 2); });
  CHECK_THAT(damage(saved.of(2)), Contains(file.string()) && Contains("no older checkpoint is complete"));
}

TEST_CASE("numbers that are no counts are damage, even with the right checksum") {
  const Saved saved({1});
  const std::string number =
      GENERATE(values<std::string>({"-1", "0.5", "2e+42", "-1e300", "18446744073709551616", "\"1\""}));
  const auto replace = [&](std::string& text, const std::string& key) {
    const std::size_t begin = text.find_first_not_of(" [\n", text.find("\"" + key + "\":") + key.size() + 3);
    REQUIRE(begin < text.size());
    text.replace(begin, text.find_first_of(",]}\n", begin) - begin, number);
  };
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  SECTION("of the manifest") {
    const fs::path file = saved.of(1) / "manifest.json";
    for (const char* key : {"step", "shape", "bytes"}) {
      const std::string whole = test::read_file(file.string());
      change(file, [&](std::string& text) {
        replace(text, key);
        const std::string rest = text.substr(text.find(',') + 1);
        text = fmt::format("{{\"crc32c\": \"{:08x}\",{}", crc32c(bytes_of(rest)), rest);
      });
      CAPTURE(key, number);
      CHECK_THAT(damage(saved.of(1)), Contains(file.string() + ": damaged: '" + key + "'") && Contains("whole number"));
      test::write_file(file.string(), whole);
    }
  }
  SECTION("of a shard's index") {
    const fs::path file = saved.of(1) / "server-0.shard";
    for (const char* key : {"step", "begin", "end", "offset", "crc32c"}) {
      const std::string whole = test::read_file(file.string());
      change(file, [&](std::string& text) {
        std::uint64_t size = 0;
        std::memcpy(&size, text.data() + text.size() - 16, 8);
        std::string index = text.substr(text.size() - 16 - size, size);
        std::string footer = text.substr(text.size() - 16);
        text.resize(text.size() - 16 - size);
        replace(index, key);
        size = index.size();
        const std::uint32_t crc = crc32c(bytes_of(index));
        std::memcpy(footer.data(), &size, 8);
        std::memcpy(footer.data() + 8, &crc, 4);
        text += index + footer;
      });
      CAPTURE(key, number);
      CHECK_THAT(damage(saved.of(1)),
                 Contains(file.string()) && Contains(fmt::format("'{}'", key)) && Contains("whole number"));
      test::write_file(file.string(), whole);
    }
  }
}

TEST_CASE("a checkpoint in which an element is missing, or stands twice, is not completed") {
  const Saved saved({});
  const Layout layout = saved_layout(3);
  const fs::path aside = saved.folder().aside(5);
  const auto refusal = [&] {
    return error_of(ErrorKind::data, [&] { write_manifest(aside, test::manifest_of(layout, 5)); });
  };
  test::save_share(aside, layout, 0, 5);
  test::save_share(aside, layout, 2, 5);
  CHECK_THAT(refusal(), Contains(aside.string()) && Contains("once"));
  test::save_share(aside, layout, 1, 4);
  CHECK_THAT(refusal(), Contains("server-1.shard") && Contains("step 4"));
  test::save_share(aside, layout, 1, 5);
  fs::copy_file(aside / "server-1.shard", aside / "server-9.shard");
  CHECK_THAT(refusal(), Contains("once"));
  fs::remove(aside / "server-9.shard");
  write_manifest(aside, test::manifest_of(layout, 5));
  saved.folder().commit(5);
  CHECK(test::holds(Checkpoint(find_checkpoint(saved.path())), layout, 5));
}

TEST_CASE("tensors that were not saved are said") {
  const Saved saved({1});
  const Checkpoint checkpoint(saved.of(1));
  const Layout other = make_layout({{"u", {{{"z", {10}, {}}, 0, 0}}}}, 1);
  std::vector<float> out(256);
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        checkpoint.read(other.units[0], {0, 256}, kValues, out);
                      }),
             Contains("no values of 'z'"));
  const Layout longer = make_layout({{"u", {{{"a", {101}, {}}, 0, 0}}}}, 1);
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        checkpoint.read(longer.units[0], {0, 256}, kValues, out);
                      }),
             Contains("'a' is shorter"));
}
