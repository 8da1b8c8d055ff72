// Tests the judgements of psring doctor, on both sides of each limit; the limits of control groups, from made-up trees;
// and the link's protocol, within this process.
#include <filesystem>
#include <future>

#include <catch2/catch.hpp>

#include <psring/cli/doctor/doctor_judge.h>
#include <psring/cli/doctor/doctor_link.h>
#include <psring/common/base/system/control_group.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>

using namespace psring;
using namespace psring::cli;
using Catch::Contains;
using psring::test::TemporaryFolder;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

bool is_ok(const Judgement& judged) { return judged.level == Level::ok && judged.cure.empty(); }
bool warns(const Judgement& judged) { return judged.level == Level::warn && !judged.cure.empty(); }
bool fails(const Judgement& judged) { return judged.level == Level::fail && !judged.cure.empty(); }

LinkFigures good_link() {
  return {.where = "10.0.0.2:7070",
          .round_trip_s = 100e-6,
          .least_round_trip_s = 80e-6,
          .sending_bytes_per_s = 1.1e9,
          .receiving_bytes_per_s = 1.2e9,
          .clock_offset_s = -0.002};
}

std::string write_in(const TemporaryFolder& root, const std::string& file, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(root.file(file)).parent_path());
  return test::write_file(root.file(file), text);
}

}  // namespace

TEST_CASE("ports for a job's links") {
  CHECK(is_ok(judge_port_range(32768, 60999, 8)));
  CHECK(is_ok(judge_port_range(1000, 1207, 8)));  // 4 times 28 pairs + 24
  CHECK(warns(judge_port_range(1000, 1206, 8)));
  CHECK(warns(judge_port_range(1000, 1051, 8)));
  CHECK(fails(judge_port_range(1000, 1050, 8)));
  CHECK(fails(judge_port_range(60999, 32768, 8)));
  CHECK(judge_port_range(1000, 1050, 8).values.at("needed") == 52);
}

TEST_CASE("memory for a job's processes, in the least of what there is and what is allowed") {
  CHECK(is_ok(judge_memory(2 * kGiB, std::nullopt, 8)));
  CHECK(warns(judge_memory(2 * kGiB - 1, std::nullopt, 8)));
  CHECK(is_ok(judge_memory(4 * kGiB, 2 * kGiB, 8)));
  CHECK(warns(judge_memory(4 * kGiB, 256 * kMiB, 8)));
  CHECK(fails(judge_memory(4 * kGiB, 256 * kMiB - 1, 8)));
  CHECK(fails(judge_memory(255 * kMiB, 4 * kGiB, 8)));
  CHECK_THAT(judge_memory(4 * kGiB, 1 * kGiB, 8).cure, Contains("128 MiB for each of 8 processes"));
}

TEST_CASE("limits of sizes") {
  CHECK(is_ok(judge_size_limits(std::nullopt, std::nullopt)));
  CHECK(warns(judge_size_limits(std::nullopt, 256 * kMiB)));
  CHECK(warns(judge_size_limits(8 * kGiB, std::nullopt)));
  CHECK(fails(judge_size_limits(8 * kGiB, 256 * kMiB - 1)));
  CHECK(warns(judge_size_limits(512 * kMiB, std::nullopt)));
  CHECK(fails(judge_size_limits(512 * kMiB - 1, std::nullopt)));
  CHECK_THAT(judge_size_limits(8 * kGiB, 256 * kMiB).figure, Contains("8.0 GiB") && Contains("256 MiB"));
}

TEST_CASE("huge pages are what the kernel made, and the cure depends on its setting") {
  CHECK(is_ok(judge_huge_pages(64 * kMiB, 64 * kMiB, "advise", 2 * kMiB)));
  CHECK(is_ok(judge_huge_pages(64 * kMiB, 32 * kMiB, "advise", 2 * kMiB)));
  const Judgement cut_up = judge_huge_pages(64 * kMiB, 30 * kMiB, "advise", 2 * kMiB);
  CHECK(warns(cut_up));
  CHECK_THAT(cut_up.cure, Contains("compact_memory"));
  CHECK_THAT(judge_huge_pages(64 * kMiB, 0, "never", 2 * kMiB).cure, Contains("shmem_enabled"));
  CHECK(warns(judge_huge_pages(64 * kMiB, 0, "advise", 64 * kMiB)));

  // Nothing cures huge pages that are larger than the memory: kernels with pages of 64 KiB have such ones.
  const Judgement large = judge_huge_pages(64 * kMiB, 0, "never", 512 * kMiB);
  CHECK(is_ok(large));
  CHECK_THAT(large.figure, Contains("512 MiB"));
}

TEST_CASE("descriptors and threads") {
  CHECK(is_ok(judge_open_files(112, 112, 8)));
  const Judgement soft = judge_open_files(111, 4096, 8);
  CHECK(fails(soft));
  CHECK(soft.cure == "ulimit -n 112");
  CHECK_THAT(judge_open_files(111, 111, 8).cure, Contains("hard limit of 111"));
  CHECK(fails(judge_open_files(1024, 1024, 200)));

  CHECK(is_ok(judge_tasks(std::nullopt, 100'000, 8)));
  CHECK(is_ok(judge_tasks(1000, 840, 8)));
  CHECK(warns(judge_tasks(1000, 841, 8)));
  CHECK(fails(judge_tasks(1000, 921, 8)));
  CHECK(fails(judge_tasks(1000, 2000, 8)));
}

TEST_CASE("processors, and what a control group gives of them") {
  CHECK(is_ok(judge_processors(2, 8, std::nullopt)));
  CHECK(is_ok(judge_processors(2, 2, 2.0)));
  CHECK(warns(judge_processors(2, 2, 1.5)));
  CHECK_THAT(judge_processors(2, 2, 1.5).cure, Contains("cpu.max"));
  CHECK(warns(judge_processors(1, 2, std::nullopt)));
}

TEST_CASE("vector units: what psring is built for must be there, the rest is said") {
  const std::set<std::string> least = {"avx2", "fma", "f16c", "bmi2", "sse4_2"};
  CHECK(is_ok(judge_vector_units(least)));
  CHECK(judge_vector_units(least).figure == "AVX2; no AVX-512, AVX-512 BF16, AMX BF16, AMX INT8");
  for (const char* needed : {"avx2", "fma", "f16c", "bmi2"}) {
    std::set<std::string> features = least;
    features.erase(needed);
    CHECK(fails(judge_vector_units(features)));
    CHECK_THAT(judge_vector_units(features).cure, Contains(needed));
  }
  std::set<std::string> all = least;
  all.insert({"avx512f", "avx512_bf16", "amx_bf16", "amx_int8"});
  CHECK(judge_vector_units(all).figure == "AVX2, AVX-512, AVX-512 BF16, AMX BF16, AMX INT8");
}

TEST_CASE("products in bf16 have to be faster only where there is a unit for them") {
  CHECK(is_ok(judge_products(100e9, 110.1e9, true)));
  CHECK(warns(judge_products(100e9, 100e9, true)));
  CHECK(is_ok(judge_products(100e9, 50e9, false)));
  CHECK_THAT(judge_products(100e9, 50e9, false).figure, Contains("not time"));
}

TEST_CASE("congestion control within a host") {
  CHECK(is_ok(judge_congestion_control("bbr", true)));
  CHECK(is_ok(judge_congestion_control("cubic", false)));
  CHECK(warns(judge_congestion_control("bbr", false)));
}

TEST_CASE("the clock") {
  CHECK(is_ok(judge_clock("tsc", 25e-9, 0, 40'000)));
  CHECK(warns(judge_clock("acpi_pm", 1.1e-6, 0, 40'000)));
  CHECK(fails(judge_clock("tsc", 25e-9, 1, 40'000)));
  CHECK(is_ok(judge_steadiness(-500e-6)));
  CHECK(warns(judge_steadiness(600e-6)));
  CHECK(warns(judge_steadiness(-600e-6)));
}

TEST_CASE("speeds of this host") {
  CHECK(is_ok(judge_memory_speed(20e9, 36e9, 2)));
  CHECK(warns(judge_memory_speed(2e9, 3.9e9, 2)));
  CHECK(is_ok(judge_encryption(0.7e9)));
  CHECK(warns(judge_encryption(0.1e9)));
  const GpuFigures gpus[] = {{"a GPU (GPU 0)", 3UL << 30, 4UL << 30, 2e10, 2.5e10},
                             {"a GPU (GPU 1)", 4UL << 30, 4UL << 30, 2e10, 1e9}};
  CHECK(is_ok(judge_accelerators(std::span(gpus).first(1), "", true)));
  CHECK(judge_accelerators(std::span(gpus).first(1), "", true).figure ==
        "a GPU (GPU 0): 3 of 4 GiB free, 20 GB/s to it, 25 GB/s from it");
  CHECK(warns(judge_accelerators(gpus, "", true)));
  CHECK(judge_accelerators(gpus, "", true).values.at("copy_bytes_per_s") == 1e9);
  const GpuFigures full{.trouble = "GPU 0: no room"};
  CHECK(warns(judge_accelerators(std::span(&full, 1), "", true)));
  CHECK(judge_accelerators(std::span(&full, 1), "", true).figure == "GPU 0: no room");
  CHECK(is_ok(judge_accelerators({}, "no GPU", false)));
  CHECK(warns(judge_accelerators({}, "built without CUDA", true)));
  CHECK(is_ok(judge_other_load(0.2)));
  CHECK(warns(judge_other_load(0.3)));
  CHECK(warns(judge_other_load(std::nullopt)));
  CHECK(is_ok(judge_loopback(good_link())));
  LinkFigures slow = good_link();
  slow.receiving_bytes_per_s = 4e8;
  CHECK(warns(judge_loopback(slow)));
}

TEST_CASE("a link is judged by its slower way, its delay, and how far its clocks are apart") {
  CHECK(is_ok(judge_link(good_link())));
  CHECK(is_ok(judge_delay(good_link())));
  CHECK(is_ok(judge_offset(good_link())));
  CHECK_THAT(judge_offset(good_link()).figure, Contains("2 ms behind, give or take 40 us"));
  LinkFigures link = good_link();
  link.sending_bytes_per_s = 1e7;
  CHECK_THAT(judge_link(link).cure, Contains("--accumulate"));
  link.sending_bytes_per_s = 1e8;
  CHECK_THAT(judge_link(link).cure, Contains("ethtool"));
  link.round_trip_s = 0.02;
  CHECK(warns(judge_delay(link)));
  for (const double offset : {0.6, -0.6}) {
    link.clock_offset_s = offset;
    CHECK(warns(judge_offset(link)));
  }
}

TEST_CASE("control groups of version 2: the least of ours and all above, in what is visible of them") {
  const TemporaryFolder root;
  CHECK_FALSE(control_group_limits("0::/a/b\n", root.path()).memory_bytes);
  write_in(root, "a/memory.max", "1000000\n");
  write_in(root, "a/cpu.max", "max 100000\n");
  write_in(root, "a/b/memory.max", "max\n");
  write_in(root, "a/b/cpu.max", "150000 100000\n");
  write_in(root, "a/b/pids.max", "100\n");
  write_in(root, "a/b/pids.current", "30\n");
  const ControlGroupLimits limits = control_group_limits("0::/a/b\n", root.path());
  CHECK(limits.memory_bytes == 1'000'000);
  CHECK(limits.processors == 1.5);
  CHECK(limits.tasks_left == 70);
  write_in(root, "memory.max", "5000\n");  // as a container sees its own group, at the root
  CHECK(control_group_limits("0::/elsewhere/hidden\n", root.path()).memory_bytes == 5000);
  CHECK(control_group_limits("0::/\n", root.path()).memory_bytes == 5000);
}

TEST_CASE("control groups of version 1: a folder for each controller") {
  const TemporaryFolder root;
  write_in(root, "memory/job/memory.limit_in_bytes", "2000000\n");
  write_in(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
  write_in(root, "cpu/cpu.cfs_quota_us", "-1\n");
  write_in(root, "cpu/cpu.cfs_period_us", "100000\n");
  write_in(root, "cpu/job/cpu.cfs_quota_us", "50000\n");
  write_in(root, "cpu/job/cpu.cfs_period_us", "100000\n");
  const std::string membership = "4:memory:/job\n3:cpu,cpuacct:/job\nnonsense\n1:name=systemd:/\n0::/\n";
  const ControlGroupLimits limits = control_group_limits(membership, root.path());
  CHECK(limits.memory_bytes == 2'000'000);
  CHECK(limits.processors == 0.5);
  CHECK_FALSE(limits.tasks_left);
  const ControlGroupLimits none = control_group_limits("4:memory:/\n1:cpu:/\n", root.path());
  CHECK_FALSE(none.memory_bytes);
  CHECK_FALSE(none.processors);
}

TEST_CASE("a link within this process is measured, and its two clocks are one") {
  const LinkFigures figures = measure_loopback(std::chrono::milliseconds(20));
  CHECK_THAT(figures.where, Contains("127.0.0.1:"));
  CHECK(figures.least_round_trip_s > 0);
  CHECK(figures.round_trip_s >= figures.least_round_trip_s);
  CHECK(figures.sending_bytes_per_s > 0);
  CHECK(figures.receiving_bytes_per_s > 0);
  CHECK(std::abs(figures.clock_offset_s) <= figures.least_round_trip_s / 2 + 1e-3);
}

TEST_CASE("a doctor that answers takes no other key, waits on for the right one, and no longer than it was told") {
  const net::JobKey key = net::JobKey::generate();
  const auto in = [](int seconds) { return SystemClock().now() + std::chrono::seconds(seconds); };
  LinkAnswerer answerer(key, {"127.0.0.1", 0});
  auto answered = std::async(std::launch::async, [&] { return answerer.answer(in(60)); });
  try {
    const LinkAsker stranger(net::JobKey::generate(), answerer.endpoint(), in(60));
    FAIL("a stranger was let in");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unauthorised);
  }
  CHECK(LinkAsker(key, answerer.endpoint(), in(60)).measure(Nanoseconds(1)).sending_bytes_per_s > 0);
  CHECK_THAT(answered.get(), Contains("127.0.0.1:"));

  LinkAnswerer lonely(key, {"127.0.0.1", 0});
  try {
    lonely.answer(SystemClock().now());
    FAIL("nobody came");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::timeout);
    CHECK_THAT(error.what(), Contains(lonely.endpoint()));
  }
}
