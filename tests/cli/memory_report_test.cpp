#include <fstream>

#include <catch2/catch.hpp>

#include <psring/cli/memory/memory_report.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::cli;

TEST_CASE("what processes take together is counted at one time, by what each said last") {
  const test::TemporaryFolder folder;
  const auto file = folder.file("memory.jsonl");
  std::ofstream(file) << R"({"time_s":1.0,"role":"worker","rank":0,"rss":100,"pss":60})"
                         "\n"
                      << R"({"time_s":3.0,"role":"worker","rank":0,"rss":90,"pss":20})"
                         "\n"
                      << R"({"time_s":2.0,"role":"server","rank":0,"rss":50,"pss":30})"
                         "\n"
                      << R"({"time_s":4.0,"role":"server","rank":0,"rss":70,"pss":65})"
                         "\n"
                      << R"({"time_s":5.0,"role":"worker","rank":1,"rss":null,"pss":null})"
                         "\n";
  const SystemMemory memory = read_system_memory(file);
  CHECK(memory.rss == std::map<std::string, std::uint64_t>{{"server 0", 70}, {"worker 0", 100}});
  CHECK(memory.pss == std::map<std::string, std::uint64_t>{{"server 0", 65}, {"worker 0", 60}});
  CHECK(memory.pss_together == 90);  // 60 + 30 at 2 s; later 20 + 65
}

TEST_CASE("no file has no figures, and a broken one is an error that names it") {
  const test::TemporaryFolder folder;
  const SystemMemory nothing = read_system_memory(folder.file("none"));
  CHECK(nothing.rss.empty());
  CHECK_FALSE(nothing.pss_together);
  const auto file = folder.file("memory.jsonl");
  std::ofstream(file) << R"({"time_s":1.0,"role":"worker")";
  CHECK_THROWS_WITH(read_system_memory(file), Catch::Contains("memory.jsonl"));
}
