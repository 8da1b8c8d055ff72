// The table that psring compare prints, and its machine-readable copies, from made-up runs.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <psring/cli/compare/compare_files.h>
#include <psring/cli/compare/compare_sections.h>
#include <psring/cli/compare/compare_table.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::cli;
using Catch::Contains;
using Catch::StartsWith;

namespace {

/// As a run with servers, of a worker that moves `bytes` each way in each of 10 steps.
Summary summary(std::uint64_t bytes, double step_s = 0.004) {
  Summary run{.strategy = "ps", .steps = 10, .samples_per_second = 30000, .step_seconds = step_s};
  run.exposed_seconds = step_s / 4;
  run.final_loss = 0.4654;
  run.test_accuracy = 0.7858;
  for (const char* direction : {"sent", "received"}) {
    run.bytes.push_back({"worker 0", direction, 10 * bytes, 10 * bytes});
    run.bytes.push_back({"worker 1", direction, 10 * bytes, 10 * bytes});
    run.bytes.push_back({"servers", direction, 20 * bytes, 20 * bytes});
  }
  for (const char* process : {"worker 0", "worker 1", "server 0"}) {
    run.memory.push_back({process, "parameters", bytes, bytes});
    run.memory.push_back({process, "gradients", bytes, bytes});
    run.memory.push_back({process, "activations", 1000, 1000});
    run.system_memory.rss[process] = 4 * bytes;
    run.system_memory.pss[process] = 3 * bytes;
  }
  run.system_memory.pss_together = 9 * bytes;
  run.worker_peak_bytes = run.server_peak_bytes = 2 * bytes + 1000;
  return run;
}

Row row(const std::string& label, const std::vector<Summary>& runs, std::size_t servers = 1,
        const worker::StrategyKind& kind = {}) {
  JobOptions job;
  job.strategy = label;
  job.servers = servers;
  return {.entry = {label, job, std::make_shared<worker::StrategyKind>(kind)},
          .runs = runs,
          .equality = Equality::same_bits,
          .largest_difference = 0.0,
          .processors = 8,
          .others = std::vector<std::optional<double>>(runs.size(), 0.0)};
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) most = std::max(most, columns_of(line));
  return most;
}

std::vector<std::vector<std::string>> read_csv(const std::filesystem::path& file) {
  std::vector<std::vector<std::string>> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.emplace_back();
      else
        cells.back() += c;
    }
    lines.push_back(cells);
  }
  return lines;
}

}  // namespace

TEST_CASE("the table of all presets keeps to 100 columns, whatever is in it") {
  std::vector<Row> rows;
  for (const char* label : {"single", "dp", "ps", "ps-zero2", "ps-zero3", "ps-colocated", "ps-ssp", "ps-async",
                            "ddp-naive", "ddp", "zero1", "zero2", "zero3"})
    rows.push_back(row(label, {summary(2680832)}));
  CHECK(widest(main_table(rows).plain(kTableColumns)) <= 90);

  SECTION("large figures") {
    Summary large = summary(std::uint64_t{1} << 60, 1e9);
    large.samples_per_second = 1e30;
    large.final_loss = -1e30;
    rows.push_back(row("ps", {large, large}));
  }
  SECTION("small and missing ones") {
    Summary small{.strategy = "x", .steps = 10, .samples_per_second = 1e-30, .step_seconds = 1e-12};
    small.final_loss = std::numeric_limits<double>::quiet_NaN();
    rows.push_back(row("x", {small}, 0));
    CHECK_THAT(main_table(rows).plain(kTableColumns), Contains("0 —"));
  }
  SECTION("long names, and the words of inexact ones") {
    Row inexact = row("ps-colocated n=128 s=128 reshard-after-forward=off bucket=25M", {summary(2680832)});
    inexact.equality = Equality::inexact;
    rows.push_back(inexact);
    rows.push_back(row(std::string(250, 'x'), {summary(2680832)}));
    CHECK_THAT(main_table(rows).plain(kTableColumns),
               Contains("ps-colocated n=128 s=128 reshard-after-forward=off bucket=25M\n"));
  }
  SECTION("a link of all others' longest words") {
    Row& slow = rows.emplace_back(row("slow", {summary(99'999'999'999, 9999)}));
    slow.entry.job.link = "1mbit";
  }
  const std::string text = main_table(rows).plain(kTableColumns);
  INFO(text);
  CHECK(widest(text) <= kTableColumns);
  CHECK(widest(legend(rows)) <= kTableColumns);
  for (const std::string& line : bound_lines(rows)) CHECK(widest(wrapped(line, kTableColumns, 2)) <= kTableColumns);
}

TEST_CASE("a row says what was measured and whether it is as predicted") {
  const std::vector<Row> rows{row("ps", {summary(1'000'000)})};
  CHECK(main_table(rows).plain(kTableColumns) ==
        "strategy  samples/s ms/step exposed bytes/step peak MiB equal    acc bound by\n"
        "-----------------------------------------------------------------------------\n"
        "ps            30000   4.000   1.000  2000000 ✓    1.9 ✓     = 0.7858  compute\n"
        "  servers                            4000000 ✓    1.9 ✓\n");
  CHECK(failures(rows).empty());
  CHECK(rows.front().ok());
}

TEST_CASE("predicted steps come first, and what was measured here beside them") {
  std::vector<Row> rows{row("ps", {summary(1'000'000)}), row("mine", {summary(1'000'000)}, 0)};
  rows[0].predicted = {{.link = "10gbit,20us", .encrypted = true, .step_s = 0.0125, .compute_s = 0.01}};
  rows[1].predicted = {{.link = "10gbit,20us", .encrypted = true, .reason = "a reason"}};
  CHECK(main_table(rows).plain(kTableColumns) ==
        "strategy  cluster samples/s ms/step exposed bytes/step peak MiB equal    acc bound by\n"
        "-------------------------------------------------------------------------------------\n"
        "ps          12.50     30000   4.000   1.000  2000000 ✓    1.9 ✓     = 0.7858  compute\n"
        "  servers                                    4000000 ✓    1.9 ✓\n"
        "mine            —     30000   4.000   1.000  2000000 ✓    1.9 ✓     = 0.7858  compute\n");
  CHECK_THAT(legend(rows), StartsWith("cluster: step on a cluster in ms, predicted: one process a host, links of "
                                      "10gbit,20us, encrypted.\n") &&
                               Contains("no prediction of mine: a reason\n"));
  SECTION("two links") {
    rows[0].predicted.push_back({.link = "100mbit", .step_s = 0.5});
    rows[1].predicted.push_back({.link = "100mbit", .reason = "a reason"});
    CHECK_THAT(main_table(rows).plain(kTableColumns), StartsWith("strategy  10gbit,20us 100mbit samples/s ms/step ") &&
                                                          Contains("ps              12.50  500.00     30000   4.000 "));
    CHECK_THAT(legend(rows), Contains("links of 10gbit,20us,\nencrypted.\n100mbit: step on a cluster in ms, predicted: "
                                      "one process a host, links of 100mbit.\n"));
  }
  CHECK(widest(legend(rows)) <= kTableColumns);
}

TEST_CASE("a role is as predicted only if each of its figures is, in each run") {
  Summary whole = summary(1'000'000);
  whole.memory.push_back({"server 0", "staging", 0, std::nullopt});  // nothing is booked: that needs no formula
  Summary part = whole;
  part.memory.push_back({"server 0", "communication", 8, std::nullopt});
  part.bytes.push_back({"servers", "replicated", 8, std::nullopt});
  CHECK(memory_ok(row("ps", {whole, whole}), kServers) == true);
  for (const std::vector<Summary>& runs : {std::vector{part}, {whole, part}}) {
    const Row incomplete = row("ps", runs);
    CHECK(memory_ok(incomplete, kServers) == std::nullopt);
    CHECK(bytes_ok(incomplete, kServers) == std::nullopt);
    CHECK(memory_ok(incomplete, kWorkers) == true);
    CHECK(bytes_ok(incomplete, kWorkers) == true);
    CHECK_THAT(main_table({incomplete}).plain(kTableColumns), Contains("4000000 —    1.9 —\n"));
    CHECK(incomplete.ok());
  }
  Summary wrong = part;
  wrong.memory.front().peak += 1;  // of worker 0
  wrong.memory.back().predicted = 9;
  CHECK(memory_ok(row("ps", {part, wrong}), kServers) == false);
  CHECK(memory_ok(row("ps", {part, wrong}), kWorkers) == false);
}

TEST_CASE("where no row has an accuracy there is the loss") {
  Summary run = summary(1000);
  run.test_accuracy.reset();
  CHECK_THAT(main_table({row("ps", {run})}).plain(), Contains(" loss ") && Contains(" 0.4654 "));
}

TEST_CASE("a text model has tokens/s and perplexity in place of samples/s and accuracy") {
  Summary run = summary(1000);
  run.tokens_per_sample = 32;
  run.tokens_per_second = 32 * run.samples_per_second;
  run.test_loss = 2;
  const std::vector<Row> rows{row("ps", {run})};
  CHECK(main_table(rows).plain(kTableColumns) ==
        "strategy  tokens/s ms/step exposed bytes/step peak MiB equal  ppl bound by\n"
        "--------------------------------------------------------------------------\n"
        "ps          960000   4.000   1.000     2000 ✓    0.0 ✓     = 7.39  compute\n"
        "  servers                              4000 ✓    0.0 ✓\n");
  CHECK_THAT(legend(rows),
             Contains("tokens/s: training tokens") && Contains("ppl: perplexity") && !Contains("samples/s"));
  CHECK(widest(legend(rows)) <= kTableColumns);
  CHECK_THAT(wide_sections(rows).at(0).table.plain(), Contains(" tokens/s ") && Contains(" perplexity "));

  SECTION("without a test split") {
    run.test_loss.reset();
    CHECK_THAT(main_table({row("ps", {run})}).plain(), Contains(" tokens/s ") && Contains(" loss "));
  }
  SECTION("beside a model of another kind") {
    CHECK_THAT(main_table({row("ps", {run}), row("ddp", {summary(1000)})}).plain(),
               Contains(" samples/s ") && Contains(" acc "));
  }
}

TEST_CASE("what is not as predicted is marked in the row of whose it is, and named") {
  Summary bad = summary(1000);
  SECTION("a worker's bytes, if not of the first") {
    bad.bytes[1].measured += 5;
    const Row wrong = row("ps", {summary(1000), bad});
    CHECK(bytes_ok(wrong, kWorkers) == false);
    CHECK(bytes_ok(wrong, kServers) == true);
    CHECK_FALSE(wrong.ok());
    CHECK_THAT(main_table({wrong}).plain(), Contains("2000 ✗"));
    CHECK(failures({wrong}) ==
          std::vector<std::string>{"✗ ps, run 2: worker 1 sent: 10005 bytes in the run, predicted 10000 (+5)"});
  }
  SECTION("a server's memory") {
    bad.memory.back() = {"server 0", "optimizer", 3, 7};
    const Row wrong = row("ps", {bad});
    CHECK(memory_ok(wrong, kWorkers) == true);
    CHECK(memory_ok(wrong, kServers) == false);
    CHECK_FALSE(wrong.ok());
    CHECK(failures({wrong}) ==
          std::vector<std::string>{"✗ ps: server 0 booked 3 bytes for optimizer, predicted 7 (-4)"});
  }
  SECTION("equality") {
    Row wrong = row("ddp", {summary(1000)}, 0);
    wrong.equality = Equality::differs;
    wrong.largest_difference = 0.5;
    CHECK_FALSE(wrong.ok());
    CHECK_THAT(main_table({wrong}).plain(), Contains(" ✗ 0.7858"));
    CHECK_THAT(failures({wrong}).at(0), Contains("0.5 apart"));
  }
}

TEST_CASE("an inexact strategy is shown as such and never fails") {
  Row inexact = row("ps-async", {summary(1000)});
  inexact.equality = Equality::inexact;
  inexact.largest_difference = 0.01;
  CHECK(inexact.ok());
  CHECK_THAT(main_table({inexact}).plain(), Contains(" inexact "));
  CHECK_THAT(wide_sections({inexact}).at(0).table.plain(), Contains(" inexact               0.01"));
}

TEST_CASE("several runs have a median and a spread") {
  const std::vector<Row> rows{row("ps", {summary(1000, 0.006), summary(1000, 0.004), summary(1000, 0.005)}),
                              row("ddp", {summary(1000, 0.001)}, 0)};
  const Spread step = rows.front().spread(&Summary::step_seconds);
  CHECK(step.median == 0.005);
  CHECK(step.least == 0.004);
  CHECK(step.most == 0.006);
  CHECK(step.relative() == Approx(0.4));
  CHECK(spread_of({1, 2, 4, 8}).median == 3);
  const std::string text = main_table(rows).plain();
  CHECK_THAT(text, Contains("  5.000 40.0 % "));
  CHECK_THAT(text, Contains("  1.000      — "));
  CHECK_THAT(legend(rows), Contains("Medians over runs"));
}

TEST_CASE("--wide: every process, formulas and differences, equal processes in one line") {
  Summary uneven = summary(1000);
  uneven.memory[3].peak = 1250;  // of worker 1: parameters
  std::string text;
  for (const Section& section : wide_sections({row("ps", {summary(1000)}), row("odd", {uneven})}))
    text += section.table.plain();
  CHECK_THAT(text, Contains("ps       2 workers  parameters   1000    1000         +0\n"));
  CHECK_THAT(text, Contains("odd       worker 0  parameters   1000    1000         +0\n"));
  CHECK_THAT(text, Contains("odd       worker 1  parameters   1250    1000       +250\n"));
  CHECK_THAT(text, Contains("ps        server 0 activations   1000    1000         +0\n"));
  CHECK_THAT(text, Contains("ps         servers      sent         2000    2000         +0\n"));
}

TEST_CASE("--wide: the textbook's reduction beside the measured one") {
  Summary zero = summary(1000);
  zero.memory = {{"worker 0", "parameters", 500, 500},
                 {"worker 0", "gradients", 500, 500},
                 {"worker 0", "communication", 1000, 1000},
                 {"worker 0", "activations", 10, std::nullopt}};
  std::vector<Row> rows{row("ddp", {summary(1000)}, 0, {.ring = true}),
                        row("zero3", {zero}, 0, {.ring = true, .stage = 3}),
                        row("zero1", {summary(500)}, 0, {.ring = true, .stage = 1})};
  std::string text = wide_sections(rows).back().table.plain();
  CHECK_THAT(text, Contains("zero3        3  n = 2 ×   2.00 ×           1.00 ×"));
  CHECK_THAT(text, Contains("zero1        1      4 ×   2.00 ×           2.00 ×"));
  rows.erase(rows.begin());  // nothing to compare with
  for (const Section& section : wide_sections(rows)) CHECK_THAT(section.title, !Contains("Textbook"));
}

TEST_CASE("the copies say what the table says") {
  const test::TemporaryFolder folder;
  Summary bad = summary(1000, 0.006);
  bad.memory[0].peak = 900;
  std::vector<Row> rows{row("ps, \"odd\"", {summary(1000), bad}), row("ddp", {summary(2000)}, 0)};
  rows[1].largest_difference = std::numeric_limits<double>::quiet_NaN();
  rows[0].runs[0].test_own = {{"auc", 0.75}};
  write_comparison(folder.path(), {"psring", "compare"}, rows);

  std::ifstream in(folder.file("compare.json"));
  const auto json = nlohmann::json::parse(in);
  CHECK(json["command"][1] == "compare");
  const auto& ps = json["rows"][0];
  CHECK(ps["strategy"] == "ps, \"odd\"");
  CHECK(ps["ok"] == false);
  CHECK(ps["step_s"]["median"] == 0.005);
  CHECK(ps["bound_by"] == "compute");
  CHECK(ps["runs"].size() == 2);
  CHECK(ps["runs"][1]["memory"][0] == nlohmann::json({{"process", "worker 0"},
                                                      {"category", "parameters"},
                                                      {"peak", 900},
                                                      {"predicted", 1000},
                                                      {"difference", -100}}));
  CHECK(ps["runs"][0]["pss_together_peak"] == 9000);
  CHECK(ps["runs"][0]["own"]["test_auc"] == 0.75);
  CHECK(json["rows"][1]["largest_difference"].is_null());

  const auto table = read_csv(folder.file("table.csv"));
  REQUIRE(table.size() == 4);
  for (const auto& line : table) CHECK(line.size() == table[0].size());
  CHECK(table[0][0] == "strategy");
  CHECK(table[1][1] == "workers");
  CHECK(table[2][1] == "servers");
  CHECK(table[3][0] == "ddp");
  const auto column = [&](const char* name) {
    return static_cast<std::size_t>(std::find(table[0].begin(), table[0].end(), name) - table[0].begin());
  };
  CHECK(table[1][column("memory_ok")] == "false");
  CHECK(table[2][column("memory_ok")] == "true");
  CHECK(table[2][column("bytes_per_step")] == "4000");
  CHECK(table[2][column("step_s")].empty());
  CHECK(table[3][column("step_s")] == "0.004");
  CHECK(table[1][column("test_auc")] == "0.75");
  CHECK(table[2][column("test_auc")].empty());
  CHECK(table[3][column("test_auc")].empty());

  const auto memory = read_csv(folder.file("memory.csv"));
  CHECK(memory.size() == 1 + 3 * 9);
  CHECK(memory[10] ==
        std::vector<std::string>{"ps, odd", "2", "worker 0", "parameters", "900", "1000", "-100", "4000", "3000"});

  std::ifstream text(folder.file("compare.md"));
  std::stringstream markdown;
  markdown << text.rdbuf();
  CHECK_THAT(markdown.str(), Contains("| ddp | 30000 | 4.000 | — | 1.000 | 4000 ✓ | 0.0 ✓ | = | 0.7858 | compute |\n"));
  CHECK_THAT(markdown.str(), Contains("## What bounds each") && Contains("booked 900 bytes for parameters"));
}

TEST_CASE("text is cut between words, and a longer word where it must be") {
  CHECK(wrapped("one two three", 7, 2) == "one two\n  three\n");
  CHECK(wrapped("ab—defgh", 3, 1) == "ab—\n de\n fg\n h\n");
  CHECK(csv_line({"a", "b,c", "d\"e", ""}) == "a,\"b,c\",\"d\"\"e\",\n");
}
