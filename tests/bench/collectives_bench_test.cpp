#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/bench/collective_call.h>
#include <psring/bench/predict/fit.h>
#include <psring/ring/plan/tuning.h>
#include <psring/tests/support/temporary_folder.h>

using Catch::Contains;
using Catch::StartsWith;
using namespace psring;
using namespace psring::bench;

namespace {

struct Result {
  int status = 0;
  std::string text;  ///< both streams
};

/// The benchmark as a process of which more than its end is of interest.
class Program {
 public:
  explicit Program(const std::string& arguments)
      : pipe_(::popen(("exec " + std::string(PSRING_BENCH) + " " + arguments + " 2>&1").c_str(), "r")) {
    REQUIRE(pipe_ != nullptr);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pipe_ != nullptr) ::pclose(pipe_);
  }

  /// Reads until `word` has come, or to the end.
  void read_until(const std::string& word) {
    std::array<char, 4096> buffer;
    while (text_.find(word) == std::string::npos && std::fgets(buffer.data(), buffer.size(), pipe_) != nullptr)
      text_ += buffer.data();
  }
  Result finish() {
    std::array<char, 4096> buffer;
    while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe_))
      text_.append(buffer.data(), size);
    const int status = ::pclose(std::exchange(pipe_, nullptr));
    REQUIRE(WIFEXITED(status));
    return {WEXITSTATUS(status), text_};
  }

 private:
  FILE* pipe_;
  std::string text_;
};

Result run_bench(const std::string& arguments) { return Program(arguments).finish(); }

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Lines of the table that are psring's own, cut into words.
std::vector<std::vector<std::string>> rows(const std::string& text, const std::string& by) {
  std::istringstream in(text);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> words = words_of(line);
    if (words.size() > 5 && words[5] == by) rows.push_back(std::move(words));
  }
  return rows;
}

/// Processes whose command line has this word.
std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");
    std::ostringstream line;
    line << file.rdbuf();  // nothing, if the process has ended meanwhile
    if (line.str().find(word) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

const std::string kQuick = " -n 3 -w 1 --rounds 2 --check ";

}  // namespace

TEST_CASE("every collective has a row for each size, its columns, and right results") {
  const std::string ranks = GENERATE("2", "3");
  const Result result = run_bench("all -b 8 -e 80000 -f 100 --root 1 --workers " + ranks + kQuick);
  INFO(result.text);
  CHECK(result.status == 0);
  for (const char* column : {"size(B)", "count", "type", "redop", "root", "time(us)", "algbw", "busbw", "#wrong"})
    CHECK_THAT(result.text, Contains(column));
  for (const char* name : {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter",
                           "all_to_all", "sendrecv"})
    CHECK_THAT(result.text, Contains(fmt::format("\n{}\n", name)));
  const auto ours = rows(result.text, "psring");
  CHECK(ours.size() == 9 * 3);
  for (const auto& row : ours) CHECK(row.at(10) == "0");
  CHECK(rows(result.text, "limit").size() == 9 * 3);
}

TEST_CASE("types and reductions are verified") {
  const auto [dtype, redop] = GENERATE(table<std::string, std::string>({{"f64", "product"},
                                                                        {"f16", "max"},
                                                                        {"bf16", "mean"},
                                                                        {"i8", "sum"},
                                                                        {"u8", "bit_xor"},
                                                                        {"i32", "logical_and"},
                                                                        {"i64", "min"}}));
  const std::string extra = GENERATE("", " --unregistered");
  const Result result =
      run_bench("all_reduce --workers 3 -b 8 -e 64K -f 8192 -d " + dtype + " -o " + redop + extra + kQuick);
  INFO(dtype << " " << redop << extra << ": " << result.text);
  CHECK(result.status == 0);
  const auto ours = rows(result.text, "psring");
  REQUIRE(ours.size() == 2);
  CHECK(ours[0].at(2) == dtype);
  CHECK(ours[0].at(3) == redop);
}

TEST_CASE("links and algorithms are those that were asked for") {
  const auto [flags, how] = GENERATE(table<std::string, std::string>({
      {"--transport shm --algorithm direct", "direct, shared memory"},
      {"--transport tcp --algorithm ring --segment 64K", "ring"},
      {"--transport tcp --algorithm halving-doubling", "halving-doubling"},
      {"--transport tcp --algorithm star", "star"},
      {"--transport tcp --algorithm exchange --encrypt on", "exchange"},
  }));
  const Result result = run_bench("all_reduce --workers 3 -b 512K -e 512K " + flags + kQuick);
  INFO(flags << ": " << result.text);
  CHECK(result.status == 0);
  const auto ours = rows(result.text, "psring");
  REQUIRE(ours.size() == 1);
  CHECK(ours[0].at(10) == "0");
  std::string last;
  for (std::size_t word = 12; word < ours[0].size(); ++word) last += (word == 12 ? "" : " ") + ours[0][word];
  CHECK_THAT(last, Contains(how));
}

TEST_CASE("all_reduce over TCP is tuned; rows for other numbers of ranks are kept") {
  const psring::test::TemporaryFolder folder;
  const std::string file = folder.file("fit.json");
  for (const std::string ranks : {"2", "3", "2"}) {
    const Result result =
        run_bench(fmt::format("all_reduce -b 1K -e 256K -f 256 --tune {} --workers {}{}", file, ranks, kQuick));
    INFO(result.text);
    REQUIRE(result.status == 0);
    CHECK(std::count(result.text.begin(), result.text.end(), '<') == 2);  // one choice a size
  }
  const ring::Tuning tuning = ring::Tuning::load(file);
  std::set<std::size_t> ranks;
  for (const ring::Tuning::Row& row : tuning.rows) ranks.insert(row.ranks);
  CHECK(ranks == std::set<std::size_t>{2, 3});
  CHECK(tuning.rows.size() <= 4);
  const Fit fit = load_fit("--tune", file);  // a file that --tune has begun is one of psring fit
  CHECK(fit.host == fit_of_host().host);
  CHECK(fit.tuned_over == "loopback");
  CHECK(ring::Tuning::from_json(fit.tuning).rows.size() == tuning.rows.size());
}

TEST_CASE("rows of another network do not stay in the table") {
  const psring::test::TemporaryFolder folder;
  const std::string file = folder.file("fit.json");
  Fit fit = fit_of_host();
  fit.tuning = ring::Tuning{{{.ranks = 5, .up_to_bytes = 1000}}}.to_json();
  fit.tuned_over = "hosts, encrypted";
  add_to_fit("--tune", file, fit);
  const Result result = run_bench(fmt::format("all_reduce -b 1K -e 1K --tune {} --workers 2{}", file, kQuick));
  INFO(result.text);
  REQUIRE(result.status == 0);
  CHECK_THAT(result.text, Contains("in place of those that were measured over hosts, encrypted"));
  const Fit changed = load_fit("--tune", file);
  CHECK(changed.tuned_over == "loopback");
  CHECK(ring::Tuning::from_json(changed.tuning).rows.at(0).ranks == 2);
  CHECK(ring::Tuning::from_json(changed.tuning).rows.size() == 1);
}

TEST_CASE("all_reduce is tuned over links that are shaped") {
  const psring::test::TemporaryFolder folder;
  const std::string file = folder.file("tuning.json");
  const Result result = run_bench(
      fmt::format("all_reduce --transport tcp --link 200mbit,2ms -b 64K -e 64K --tune {} --workers 3{}", file, kQuick));
  INFO(result.text);
  REQUIRE(result.status == 0);
  CHECK_THAT(result.text, Contains("all_reduce over TCP, link 200 Mbit/s, 2 ms, 3 ranks"));
  std::istringstream lines(result.text);
  std::size_t ways = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t bytes = 0;
    std::string way;
    double time_us = 0;
    if (!(words >> bytes >> way >> time_us)) continue;
    ++ways;
    CHECK(time_us > 4000);  // two delays at least: there and back
  }
  CHECK(ways >= 5);
  CHECK(ring::Tuning::load(file).rows.size() == 1);
  CHECK(load_fit("--tune", file).tuned_over == "link 200 Mbit/s, 2 ms");
}

TEST_CASE("all_reduce adds its choices to a file of psring fit") {
  const psring::test::TemporaryFolder folder;
  const std::string file = folder.file("fit.json");
  Fit fit = fit_of_host();
  fit.lines["memory.copy"] = {.per_unit_s = 1e-10, .unit = "byte"};
  add_to_fit("--tune", file, fit);
  const Result result =
      run_bench(fmt::format("all_reduce --transport tcp -b 1K -e 1K --tune {} --workers 2{}", file, kQuick));
  INFO(result.text);
  REQUIRE(result.status == 0);
  const Fit both = load_fit("--tune", file);
  CHECK(both.find("memory.copy") != nullptr);
  CHECK(ring::Tuning::from_json(both.tuning).rows.size() == 1);
}

TEST_CASE("a table does not go into another file than one of this host") {
  const psring::test::TemporaryFolder folder;
  const std::string foreign = folder.file("foreign.json");
  add_to_fit("--tune", foreign, Fit{.host = "another", .processors = 2});
  const std::string table = folder.file("table.json");
  std::ofstream(table) << ring::Tuning::built_in().to_json();
  for (const auto& [file, word] : {std::pair{foreign, "of host another"}, {table, "expected a file of psring fit"}}) {
    const Result result = run_bench(fmt::format("all_reduce -b 1K -e 1K --tune {} --workers 2{}", file, kQuick));
    INFO(result.text);
    CHECK(result.status == 3);
    CHECK_THAT(result.text, StartsWith("psring: --tune " + file) && Contains(word));
  }
}

TEST_CASE("every element that is wrong is counted") {
  for (const CollectiveKind kind : all_collectives()) {
    INFO(to_string(kind));
    CollectiveCall call{
        .kind = kind, .redop = ring::ReduceOp::Kind::sum, .root = 1, .rank = 1, .ranks = 3, .count = 30000};
    std::vector<std::vector<float>> inputs;
    for (std::uint32_t r = 0; r < call.ranks; ++r) {
      CollectiveCall of_rank = call;
      of_rank.rank = r;
      inputs.emplace_back(call.count);
      Contents(of_rank).fill(reinterpret_cast<std::byte*>(inputs.back().data()), 7);
    }
    std::vector<float> sum(call.count);
    for (const auto& input : inputs)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += input[i];
    const std::size_t part = call.part();
    std::vector<float> result(call.count);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const std::size_t r = i / part;
      switch (kind) {
        case CollectiveKind::all_reduce:
        case CollectiveKind::reduce:
          result[i] = sum[i];
          break;
        case CollectiveKind::reduce_scatter:
          result[i] = sum[(part + i) % call.count];
          break;
        case CollectiveKind::all_gather:
        case CollectiveKind::gather:
          result[i] = inputs[r][i % part];
          break;
        case CollectiveKind::broadcast:
          result[i] = inputs[1][i];
          break;
        case CollectiveKind::scatter:
          result[i] = inputs[1][(part + i) % call.count];
          break;
        case CollectiveKind::all_to_all:
          result[i] = inputs[r][part + i % part];
          break;
        case CollectiveKind::sendrecv:
          result[i] = inputs[0][i];
          break;
      }
    }
    const Contents contents(call);
    const auto* bytes = reinterpret_cast<const std::byte*>(result.data());
    CHECK(contents.count_wrong(bytes, 7) == 0);
    CHECK(contents.count_wrong(bytes, 8) > call.result() / 2);  // what an iteration leaves is not the next one's
    result[0] += 1;
    result[call.result() - 1] += 1;
    CHECK(contents.count_wrong(bytes, 7) == 2);
  }
}

TEST_CASE("the report has what the table says, and all rounds") {
  const psring::test::TemporaryFolder folder;
  const Result result = run_bench("reduce_scatter --sizes 4K --workers 2 --json " + folder.file("rows.json") + kQuick);
  INFO(result.text);
  REQUIRE(result.status == 0);
  const auto report = nlohmann::json::parse(psring::test::read_file(folder.file("rows.json")));
  CHECK(report.at("ranks") == 2);
  REQUIRE(report.at("rows").size() == 2);
  const auto& row = report["rows"][0];
  CHECK(row.at("collective") == "reduce_scatter");
  CHECK(row.at("by") == "psring");
  CHECK(row.at("size") == 4096);
  CHECK(row.at("count") == 512);
  CHECK(row.at("root") == -1);
  CHECK(row.at("wrong") == 0);
  CHECK(row.at("time_s").size() == 2);
  CHECK(row.at("loop_s").size() == 2);
  CHECK(row.at("busbw_gbs").get<double>() == Approx(row.at("algbw_gbs").get<double>() / 2));
  CHECK(report["rows"][1].at("by") == "limit");
}

TEST_CASE("a peer stands beside psring, or the error says which package it comes in") {
  const std::string peer = GENERATE("openmpi", "mpich", "gloo");
  const bool built = std::filesystem::exists(std::string(PSRING_BENCH) + "-" + peer);
  const Result result = run_bench("all_reduce -b 4K -e 4K --workers 2 --peers " + peer + kQuick);
  INFO(result.text);
  if (!built) {
    CHECK(result.status == 2);
    CHECK_THAT(result.text, Contains("--peers " + peer) && Contains("apt-get install lib" + peer));
    return;
  }
  CHECK(result.status == 0);
  const auto theirs = rows(result.text, peer);
  REQUIRE(theirs.size() == 1);
  CHECK(theirs[0].at(10) == "0");
  CHECK_NOTHROW(std::stod(theirs[0].at(12)));  // the ratio: whatever it is on a busy machine
}

TEST_CASE("a rank that is killed ends the benchmark with one line, and nothing goes on") {
  Program running("all_reduce -b 16M -e 64M -f 2 --workers 3 -n 5000 --rounds 1000");
  running.read_until("all_reduce\n");
  std::vector<pid_t> ranks;
  for (const pid_t pid : processes_with("psring-bench"))
    if (parent_of(parent_of(pid)) == ::getpid()) ranks.push_back(pid);
  REQUIRE(ranks.size() == 3);
  REQUIRE(::kill(ranks[1], SIGKILL) == 0);
  const auto start = std::chrono::steady_clock::now();
  const Result result = running.finish();
  INFO(result.text);
  CHECK(result.status == 4);
  const std::string last = result.text.substr(result.text.rfind("psring: "));
  CHECK_THAT(last, Contains("was ended by signal 9\n"));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  for (const pid_t pid : ranks) CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("the ranks go when the benchmark is killed") {
  const psring::test::TemporaryFolder folder;  // takes what the killed one leaves
  const pid_t bench_pid = ::fork();
  REQUIRE(bench_pid >= 0);
  if (bench_pid == 0) {
    ::setenv("TMPDIR", folder.file(".").c_str(), 1);
    ::execl(PSRING_BENCH, PSRING_BENCH, "all_reduce", "-b", "64M", "-e", "64M", "-n", "5000", nullptr);
    ::_exit(127);
  }
  const std::string control = "psring-bench-" + std::to_string(bench_pid) + "-psring";
  while (processes_with(control).size() < 2 && ::waitpid(bench_pid, nullptr, WNOHANG) == 0) {
  }
  REQUIRE(processes_with(control).size() == 2);
  ::kill(bench_pid, SIGKILL);
  ::waitpid(bench_pid, nullptr, 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!processes_with(control).empty() && std::chrono::steady_clock::now() < deadline) {
  }
  CHECK(processes_with(control).empty());
}

TEST_CASE("wrong flags are one line and status 2") {
  const auto [arguments, word] = GENERATE(table<std::string, std::string>({
      {"all_reduce -b 2M -e 1M", "--begin"},
      {"all_reduce -b 3", "--begin"},
      {"all_reduce -f 1", "--factor"},
      {"all_reduce --sizes 8,4Q", "--sizes"},
      {"all_reduce --sizes 8,6", "--sizes"},
      {"all_reduce --rounds 0", "--rounds"},
      {"all_reduce --workers 1", "--workers"},
      {"all_reduce -d f8", "--dtype"},
      {"all_reduce -o median", "--redop"},
      {"all_reduce -d i32 -o mean", "no meaning"},
      {"broadcast -r 2 --workers 2", "--root"},
      {"all_reduce --transport udp", "--transport"},
      {"all_reduce --algorithm best", "--algorithm"},
      {"all_reduce --algorithm ring", "--transport tcp"},
      {"all_reduce --algorithm direct --transport tcp", "--algorithm direct"},
      {"all_reduce --encrypt on", "--encrypt"},
      {"all_reduce --link 1gbit", "--transport tcp"},
      {"all_reduce --link fast --transport tcp", "--link"},
      {"all_reduce --link 1gbit --transport tcp --streams 2", "--streams"},
      {"all_reduce --link 1gbit --transport tcp --peers gloo", "--peers"},
      {"all_reduce --segment 4Q", "--segment"},
      {"all_reduce --segment 0 --transport tcp", "--segment"},
      {"all_reduce --segment 4K", "--segment 4K: works over TCP only"},
      {"all_reduce --sizes 8 -e 4K", "--sizes"},
      {"all_reduce --peers nccl", "--peers"},
      {"all_reduce --tune x.json --transport shm", "--tune"},
      {"all_reduce --tune x.json --algorithm ring --transport tcp", "--algorithm"},
      {"all_reduce --tune x.json --segment 4K", "--segment"},
      {"all_reduce --tune x.json --json y.json", "--tune"},
      {"all_reduce --tune x.json --rdzv-endpoint 127.0.0.1:1", "--key"},
      {"all_reduce --tune x.json --key job.key", "--rdzv-endpoint"},
      {"all_reduce --rdzv-endpoint 127.0.0.1:1 --key job.key", "--tune"},
      {"all_reduce --tune x.json --rdzv-endpoint 127.0.0.1:1 --key job.key --workers 2", "--workers"},
      {"all_reduce --tune x.json --rdzv-endpoint 127.0.0.1:1 --key job.key --link 1gbit", "--link"},
      {"all_reduce --tune x.json --rdzv-endpoint 127.0.0.1:1 --key job.key --encrypt on", "--encrypt"},
      {"all_reduce --tune x.json --rdzv-endpoint 127.0.0.1:1 --key job.key --streams 2", "--streams"},
      {"broadcast --tune x.json", "--tune"},
      {"all_reduce -n 100001", "--iterations"},
  }));
  const Result result = run_bench(arguments);
  INFO(arguments << ": " << result.text);
  CHECK(result.status == 2);
  CHECK(std::count(result.text.begin(), result.text.end(), '\n') == 1);
  CHECK_THAT(result.text, StartsWith("psring: ") && Contains(word));
}
