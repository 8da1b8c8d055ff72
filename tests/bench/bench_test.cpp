#include <array>
#include <cstdio>
#include <string>

#include <catch2/catch.hpp>
#include <sys/wait.h>

#include <psring/tests/support/temporary_folder.h>

using Catch::Contains;
using Catch::StartsWith;

namespace {

struct Result {
  int status = 0;
  std::string text;  ///< both streams
};

Result bench(const std::string& arguments) {
  const std::string command = std::string(PSRING_BENCH) + " " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Result result;
  std::array<char, 4096> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe))
    result.text.append(buffer.data(), size);
  const int status = ::pclose(pipe);
  REQUIRE(WIFEXITED(status));
  result.status = WEXITSTATUS(status);
  return result;
}

std::size_t lines_with(const std::string& text, const std::string& word) {
  std::size_t lines = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++lines;
  return lines;
}

}  // namespace

TEST_CASE("push_pull checks its results and prints a row for each size and exchange") {
  const psring::test::TemporaryFolder folder;
  const std::string json = folder.file("rows.json");
  const Result result = bench("push_pull --sizes 4K,1M --check -n 3 -w 1 --rounds 2 --json " + json);
  INFO(result.text);
  CHECK(result.status == 0);
  for (const char* exchange : {"  shm  ", "  tcp  ", "  raw-socket  ", "  memcpy twice  "})
    CHECK(lines_with(result.text, exchange) == 2);
  CHECK_THAT(psring::test::read_file(json),
             Contains("\"push_pull_s\"") && Contains("\"fused_s\"") && Contains("\"machine\""));
}

TEST_CASE("a vector larger than a piece and not of whole cuts, encrypted, with two server threads") {
  const Result result =
      bench("push_pull --sizes 2097156 --check -n 1 -w 1 --rounds 1 --transport tcp --encrypt on --server-threads 2");
  INFO(result.text);
  CHECK(result.status == 0);
  CHECK(lines_with(result.text, "  tcp-encrypted  ") == 1);
  CHECK(lines_with(result.text, "  cppzmq-curve  ") == 1);
}

TEST_CASE("rows are checked, and a row of the report is printed for each width and way") {
  const psring::test::TemporaryFolder folder;
  const std::string json = folder.file("rows.json");
  const Result result =
      bench("rows --rows 5k --dim 4,12 --lookups 700 --zipf 1.05 --check -n 3 -w 2 --rounds 2 --json " + json);
  INFO(result.text);
  CHECK(result.status == 0);
  for (const char* way : {"  shm  ", "  tcp  ", "  floor  ", "  array  "}) CHECK(lines_with(result.text, way) >= 2);
  CHECK(lines_with(result.text, "filled by 8 batches") == 4);
  CHECK_THAT(psring::test::read_file(json),
             Contains("\"of_floor\"") && Contains("\"push_p999_s\"") && Contains("\"predicted_bytes\""));
}

TEST_CASE("rows with uniform keys, at one server, as often as there are keys") {
  const Result result = bench("rows --rows 300 --dim 1 --lookups 300 --zipf 0 -n 1 --rounds 1 --transport shm");
  INFO(result.text);
  CHECK(result.status == 0);
  CHECK(lines_with(result.text, "  tcp  ") == 0);
}

TEST_CASE("a step of ps has the losses of single") {
  const Result result = bench("train --only step --model mlp:64-32-10 --batch 8 --steps 5 -w 1 --rounds 1");
  INFO(result.text);
  CHECK(result.status == 0);
  CHECK_THAT(result.text, Contains("of single"));
}

TEST_CASE("computing is reported beside its ceiling") {
  const Result result = bench("train --only compute --model mlp:64-32-10 --batch 8 --rounds 1");
  INFO(result.text);
  CHECK(result.status == 0);
  CHECK_THAT(result.text, Contains("ceiling") && Contains("mlp:64-32-10"));
}

TEST_CASE("wrong flags are one line and status 2") {
  const auto [arguments, word] = GENERATE(table<std::string, std::string>({
      {"push_pull --sizes 3", "--sizes"},
      {"push_pull --sizes 4Q", "--sizes"},
      {"push_pull -b 2M -e 1M", "--begin"},
      {"push_pull -f 1", "--factor"},
      {"push_pull --sizes 4K -f 2", "--sizes"},
      {"push_pull --rounds 0", "--rounds"},
      {"push_pull --rounds 4294967297", "--rounds"},
      {"push_pull -w 4294967297", "--warm-up"},
      {"push_pull --server-threads 4294967297", "--server-threads"},
      {"rows --iterations 18446744073709551616", "--iterations"},
      {"rows --iterations 4294967297", "--iterations"},
      {"rows --rounds 0", "--rounds"},
      {"train --steps 4294967297", "--steps"},
      {"push_pull --transport udp", "--transport"},
      {"push_pull --transport shm --encrypt on", "--encrypt"},
      {"push_pull --server-threads 0", "--server-threads"},
      {"rows --rows 0", "--rows"},
      {"rows --rows 5Q", "--rows"},
      {"rows --dim 0", "--dim"},
      {"rows --lookups 0", "--lookups"},
      {"rows --zipf -1", "--zipf"},
      {"rows --rounds 0", "--rounds"},
      {"rows --transport udp", "--transport"},
      {"rows --peers gloo", "--peers"},
      {"train --only all", "--only"},
      {"train --json x.json", "--json"},
      {"all_broadcast", "unknown command"},
  }));
  const Result result = bench(arguments);
  INFO(arguments << ": " << result.text);
  CHECK(result.status == 2);
  CHECK(lines_with(result.text, "\n") == 1);
  CHECK_THAT(result.text, StartsWith("psring: ") && Contains(word));
}
