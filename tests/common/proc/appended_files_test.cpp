#include <span>
#include <string>
#include <string_view>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/logs/appended_files.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Two processes append to one file, the second a line of 7 bytes last; then the coordinator is no more.
void one_coordinator(const std::string& path) {
  AppendedFiles folder(path, false);
  folder.append_once("w0", 1, "metrics", bytes_of("first\n"));
  folder.append_once("w1", 1, "metrics", bytes_of("second\n"));
  folder.append_once("w1", 1, "metrics", bytes_of("second\n"));
}

/// Members have had no answer to the newest append, and so send it again; here all of them do, as may be.
std::string after_a_second_coordinator(const std::string& path) {
  AppendedFiles folder(path, true);
  folder.append_once("w0", 1, "metrics", bytes_of("first\n"));
  folder.append_once("w1", 1, "metrics", bytes_of("second\n"));
  folder.append_once("w0", 2, "metrics", bytes_of("third\n"));
  return read_file(path + "/metrics");
}

}  // namespace

TEST_CASE("an append that comes again is written once, by the next coordinator, too") {
  TemporaryFolder run;
  one_coordinator(run.path());
  CHECK(read_file(run.file("metrics")) == "first\nsecond\n");
  CHECK(after_a_second_coordinator(run.path()) == "first\nsecond\nthird\n");
}

TEST_CASE("a coordinator may end at any byte of an append") {
  TemporaryFolder whole;
  one_coordinator(whole.path());
  const std::string book = read_file(whole.file("reports/appends"));
  const std::size_t last_line = book.rfind('\n', book.size() - 2) + 1;

  for (std::size_t booked = last_line; booked <= book.size(); ++booked)
    for (std::size_t written = 0; written <= (booked == book.size() ? 7U : 0U); ++written) {
      TemporaryFolder run;
      one_coordinator(run.path());
      std::filesystem::resize_file(run.file("reports/appends"), booked);
      std::filesystem::resize_file(run.file("metrics"), 6 + written);
      INFO(booked - last_line << " bytes of the book's line, " << written << " of the append");
      CHECK(after_a_second_coordinator(run.path()) == "first\nsecond\nthird\n");
    }
}

TEST_CASE("a file that cannot be written is named") {
  TemporaryFolder run;
  AppendedFiles folder(run.path(), false);
  std::filesystem::create_directory(run.file("metrics"));
  CHECK_THROWS_WITH(folder.append("metrics", bytes_of("line\n")), Catch::Contains(run.file("metrics")));
  CHECK_THROWS_WITH(AppendedFiles(write_file(run.file("taken"), ""), false), Catch::Contains(run.file("taken")));
}
