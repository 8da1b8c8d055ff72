#include <CLI/CLI.hpp>

#include <psring/bench/collectives_flags.h>
#include <psring/bench/peers/rank_link.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/proc/options/check.h>
#include <psring/ring/element.h>
#include <psring/ring/plan/algorithm.h>

namespace psring::bench {
namespace {

constexpr std::size_t kMostRounds = 1'000'000;

/// Accepts nccl-tests' names besides psring's.
std::string redop_name(const std::string& name) {
  if (name == "prod") return "product";
  return name == "avg" ? "mean" : name;
}

std::size_t vector_bytes(const char* flag, const std::string& text) {
  const std::size_t bytes = parse_bytes(flag, text);
  if (bytes > (std::size_t{1} << 32)) fail(ErrorKind::usage, "{}: expected up to 4G, got '{}'", flag, text);
  return bytes;
}

}  // namespace

void one_of(const char* flag, std::string_view value, std::initializer_list<std::string_view> known) {
  place_among({known.begin(), known.size()}, flag, value);
}

void CollectivesFlags::add(CLI::App& root) {
  for (const CollectiveKind kind : all_collectives())
    add_options(*root.add_subcommand(std::string(to_string(kind)), about(kind)));
  add_options(*root.add_subcommand("all", "all of these collectives, one after the other"));
  add_rank(root);
}

void CollectivesFlags::add_options(CLI::App& command) {
  command.add_option("-b,--begin", begin_, "smallest size in bytes (8, 4K, 1M); if each rank has a part, of all parts")
      ->capture_default_str();
  command.add_option("-e,--end", end_, "largest size")->capture_default_str();
  command.add_option("-f,--factor", factor_, "factor from one size to the next")->capture_default_str();
  command.add_option("--sizes", sizes_, "a list of sizes, in place of --begin and --end: 8,4K,64K,1M,16M,64M")
      ->delimiter(',');
  command
      .add_option("-n,--iterations", options_.iterations, "per round; 0: as many as take about 0.1 s, from 5 to 1000")
      ->capture_default_str();
  command.add_option("-w,--warm-up", options_.warm_up, "iterations per round before the timed ones")
      ->capture_default_str();
  command.add_option("--rounds", options_.rounds, "number of rounds; the report shows medians")->capture_default_str();
  command.add_flag("-c,--check", options_.check, "compare results after each round, too, not only before the first");
  command.add_option("-d,--dtype", dtype_, "f32, f64, f16, bf16, i8, u8, i32 or i64")->capture_default_str();
  command
      .add_option("-o,--redop", redop_, "sum, mean, product, min, max; of integers logical_and, bit_or and so on too")
      ->capture_default_str();
  command.add_option("-r,--root", options_.root, "root rank, if the collective has a root")->capture_default_str();
  command.add_option("--workers", options_.workers, "number of ranks, each a process")->capture_default_str();
  command.add_option("--transport", options_.transport, "auto, shm or tcp, which restricts the peers to TCP as well")
      ->capture_default_str();
  command
      .add_option("--algorithm", options_.algorithm,
                  "of all_reduce: auto; direct (shared memory); " + ring::algorithm_names() + " (--transport tcp)")
      ->capture_default_str();
  command.add_option("--segment", segment_, "bytes per message over TCP (64K, 1M); default: from the tuning table");
  command.add_option("--encrypt", encrypt_, "encrypt psring's TCP links")->type_name("on|off")->capture_default_str();
  command.add_option("--streams", options_.streams, "sockets per TCP link of psring")->capture_default_str();
  command.add_option("--link", options_.link,
                     "RATE[,DELAY]: shape psring's TCP links, as if each rank were a host of its own");
  command.add_flag("--unregistered", unregistered_,
                   "allocate psring's vectors with malloc, outside of the group's memory");
  command
      .add_option("--peers", options_.peers,
                  "also measure these libraries: openmpi, mpich, gloo (if found when psring was built)")
      ->delimiter(',');
  command.add_option("--json", options_.json, "write all samples to this file")->type_name("FILE");
  if (command.get_name() != "all_reduce") return;
  command
      .add_option("--tune", options_.tune,
                  "measure every algorithm over TCP instead, and add the table of the fastest to this fit.json")
      ->type_name("FILE");
  command.add_option("--rdzv-endpoint", options_.endpoint,
                     "HOST:PORT of a psring coordinator: tune between its workers, each of which runs this command");
  command.add_option("--key", options_.key_file, "key file of the coordinator's job")->type_name("FILE");
}

void CollectivesFlags::add_rank(CLI::App& root) {
  CLI::App* command = root.add_subcommand("rank", "");
  command->group("");  // started by the other commands
  command->add_option("--control", rank_.control)->required();
  command->add_option("--key", rank_.key_file)->required();
  command->add_option("--rank", rank_.rank)->required();
  command->add_option("--max-bytes", rank_.max_bytes)->required();
  command->add_option("--transport", rank_.transport)->required();
  command->add_flag("--encrypt", rank_.encrypt);
  command->add_option("--streams", rank_.streams);
  command->add_option("--link", rank_.link);
  command->add_flag("--unregistered", unregistered_);
  command->add_option("--ways", rank_.ways)->required();
}

void CollectivesFlags::settle_sizes() {
  const auto add = [&](const char* flag, std::size_t size) {
    if (size % size_bytes(options_.dtype) != 0)
      fail(ErrorKind::usage, "{}: {} bytes are no whole number of elements of {}", flag, size, dtype_);
    if (size == 0) fail(ErrorKind::usage, "{}: expected bytes > 0, got {}", flag, size);
    options_.sizes.push_back(size);
  };
  for (const std::string& size : sizes_) add("--sizes", vector_bytes("--sizes", size));
  const CollectivesFlags plain;
  const bool range = begin_ != plain.begin_ || end_ != plain.end_ || factor_ != plain.factor_;
  if (!sizes_.empty() && range) fail(ErrorKind::usage, "--sizes: takes the place of --begin, --end and --factor");
  if (!sizes_.empty()) return;
  if (factor_ < 2) fail(ErrorKind::usage, "--factor: expected a number > 1, got {}", factor_);
  const std::size_t last = vector_bytes("--end", end_);
  for (std::size_t size = vector_bytes("--begin", begin_); size <= last; size *= factor_) add("--begin", size);
  if (options_.sizes.empty()) fail(ErrorKind::usage, "--begin {} is larger than --end {}", begin_, end_);
}

/// Sets the options from the flags.
void CollectivesFlags::settle() {
  options_.dtype = parse_dtype("--dtype", dtype_);
  const ring::ReduceOp redop = ring::ReduceOp::parse("--redop", redop_name(redop_));
  redop.require_meaning({options_.dtype});
  options_.redop = redop.kind();
  settle_sizes();
  if (options_.workers < 2 || options_.workers > kMaxRanks)
    fail(ErrorKind::usage, "--workers: expected 2 to {}, got {}", kMaxRanks, options_.workers);
  if (options_.root >= options_.workers)
    fail(ErrorKind::usage, "--root: expected a rank below {}, got {}", options_.workers, options_.root);
  options::check_count("--rounds", options_.rounds, kMostRounds);
  if (options_.iterations + options_.warm_up > kMaxIterations)
    fail(ErrorKind::usage, "--iterations: expected up to {} with those of --warm-up", kMaxIterations);
  one_of("--transport", options_.transport, {"auto", "shm", "tcp"});
  if (options_.algorithm != "auto" && options_.algorithm != "direct")
    ring::parse_algorithm("--algorithm", options_.algorithm);
  if (options_.algorithm == "direct" && options_.transport == "tcp")
    fail(ErrorKind::usage, "--algorithm direct: needs shared memory; remove --transport tcp");
  if (options_.algorithm != "auto" && options_.algorithm != "direct" && options_.transport != "tcp")
    fail(ErrorKind::usage, "--algorithm {}: works over TCP only; add --transport tcp", options_.algorithm);
  if (!segment_.empty()) {
    options_.segment_bytes = vector_bytes("--segment", segment_);
    if (options_.segment_bytes == 0) fail(ErrorKind::usage, "--segment: expected bytes > 0, got '{}'", segment_);
    if (options_.transport != "tcp")
      fail(ErrorKind::usage, "--segment {}: works over TCP only; add --transport tcp", segment_);
  }
  one_of("--encrypt", encrypt_, {"on", "off"});
  options_.encrypt = encrypt_ == "on";
  if (options_.encrypt && options_.transport != "tcp")
    fail(ErrorKind::usage, "--encrypt on: works over TCP only; add --transport tcp");
  if (options_.streams < 1 || options_.streams > net::kMaxTcpStreams)
    fail(ErrorKind::usage, "--streams: expected 1 to {}, got {}", net::kMaxTcpStreams, options_.streams);
  if (options_.streams != 1 && options_.transport != "tcp")
    fail(ErrorKind::usage, "--streams {}: works over TCP only; add --transport tcp", options_.streams);
  if (!options_.link.empty()) {
    net::parse_link(options_.link);
    if (options_.transport != "tcp")
      fail(ErrorKind::usage, "--link {}: shapes TCP; add --transport tcp", options_.link);
    if (options_.streams != 1) fail(ErrorKind::usage, "--link {}: has one socket; remove --streams", options_.link);
    if (!options_.peers.empty())
      fail(ErrorKind::usage, "--link {}: shapes psring's links only; remove --peers", options_.link);
  }
  options_.registered = !unregistered_;
}

std::optional<int> CollectivesFlags::run(const CLI::App& root) {
  if (root.got_subcommand("rank")) {
    rank_.registered = !unregistered_;
    return run_psring_rank(rank_);
  }
  for (const CollectiveKind kind : all_collectives())
    if (root.got_subcommand("all") || root.got_subcommand(std::string(to_string(kind)))) options_.kinds.push_back(kind);
  if (options_.kinds.empty()) return std::nullopt;
  const bool among_hosts = !options_.endpoint.empty();
  if (among_hosts && options_.tune.empty()) fail(ErrorKind::usage, "--rdzv-endpoint: goes with --tune");
  if (among_hosts == options_.key_file.empty())
    fail(ErrorKind::usage, "--key: {}", among_hosts ? "expected with --rdzv-endpoint" : "goes with --rdzv-endpoint");
  if (!options_.tune.empty() && options_.transport == "auto") options_.transport = "tcp";
  settle();
  if (options_.tune.empty()) {
    bench_collectives(options_);
    return 0;
  }
  check_tuning(*root.get_subcommand("all_reduce"));
  tune_all_reduce(options_);
  return 0;
}

void CollectivesFlags::check_tuning(const CLI::App& command) const {
  if (options_.transport != "tcp" || options_.algorithm != "auto" || options_.segment_bytes != 0)
    fail(ErrorKind::usage,
         "--tune: chooses among the algorithms over TCP; give no --transport shm, --algorithm or "
         "--segment");
  if (!options_.peers.empty() || !options_.json.empty())
    fail(ErrorKind::usage, "--tune: measures psring alone, and writes its own file");
  if (options_.endpoint.empty()) return;
  for (const char* flag : {"--workers", "--link", "--encrypt", "--streams"})
    if (command.count(flag) > 0)
      fail(ErrorKind::usage, "{} with --rdzv-endpoint: give it to the coordinator, whose job has it", flag);
}

}  // namespace psring::bench
