#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/exchange/push_pull.h>
#include <psring/bench/peers/processes.h>
#include <psring/bench/report.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/device/buffer.h>

namespace psring::bench {
namespace {

/// A way to exchange, linked to its own server, with its times at the current size.
struct Contestant {
  Kind kind;
  std::unique_ptr<Exchange> exchange;
  std::vector<std::size_t> exchanges;  ///< exchanges made so far, by unit
  Samples apart = {};                  ///< seconds for push, wait, pull, wait
  Samples fused = {};
};

float gradient_at(std::size_t i) { return static_cast<float>(static_cast<int>(i % 1021) - 510) * 1e-3F; }

/// Returns parameter i after `updates` pushes, computed by a plain loop.
float expected_at(std::size_t i, std::size_t updates) {
  float value = kStart;
  for (std::size_t u = 0; u < updates; ++u) value = value - kLearningRate * gradient_at(i);
  return value;
}

class PushPull {
 public:
  explicit PushPull(const PushPullOptions& options) : options_(options) {
    for (const std::size_t bytes : options.sizes) elements_.push_back(bytes / sizeof(float));
    if (options.shm) add(Kind::shm);
    if (options.tcp) add(options.encrypt ? Kind::tcp_encrypted : Kind::tcp);
    if (options.tcp) add(options.encrypt ? Kind::bare_zmq : Kind::raw_socket);
    const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
    for (Buffer& buffer : copied_) buffer = Buffer(largest, Category::communication, memory_);
    for (Buffer& buffer : copied_)
      std::memset(buffer.bytes().data(), 1, largest);  // touch the pages before timing starts
  }

  void run() {
    const std::string machine = describe_machine();
    out::print("{}\n1 server, 1 worker, 2 processes; medians of {} rounds in turn, f32, SGD on the server\n", machine,
               options_.rounds);
    out::print(
        "GB/s: bytes pushed and pulled over time; fused: push and pull in one round trip; ratio: the baseline's time "
        "over ours, the median of the rounds'\n\n");
    out::print("{:>6}  {:<14} {:>12} {:>9} {:>8} {:>12} {:>9} {:>7} {:>7}\n", "size", "exchange", "push+pull us",
               "spread", "GB/s", "fused us", "GB/s", "fused/", "ratio");
    Json report{{"machine", machine}, {"rounds", options_.rounds}, {"rows", Json::array()}};
    for (std::size_t unit = 0; unit < elements_.size(); ++unit) measure(unit, report["rows"]);
    if (!options_.json.empty()) write_json_file(options_.json, report.dump(1));
  }

 private:
  void add(Kind kind) {
    const std::string endpoint =
        servers_.start({.kind = kind, .elements = elements_, .threads = options_.server_threads});
    Contestant& contestant =
        contestants_.emplace_back(Contestant{kind, connect_exchange(kind, endpoint, servers_.key_file(), elements_),
                                             std::vector<std::size_t>(elements_.size())});
    for (std::size_t unit = 0; unit < elements_.size(); ++unit) {
      const std::span<float> gradient = contestant.exchange->gradient(unit);
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = gradient_at(i);
    }
  }

  void exchange(Contestant& contestant, std::size_t unit, bool fused) {
    fused ? contestant.exchange->push_pull(unit) : contestant.exchange->push_then_pull(unit);
    ++contestant.exchanges[unit];
  }

  /// Checks that all bits equal the plain loop's.
  void verify(Contestant& contestant, std::size_t unit) {
    const std::span<const float> values = contestant.exchange->parameters(unit);
    std::vector<float> expected(std::min<std::size_t>(1021, values.size()));  // the gradient repeats with this period
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = expected_at(i, contestant.exchanges[unit]);
    for (std::size_t begin = 0; begin < values.size(); begin += expected.size()) {
      const std::size_t size = std::min(expected.size(), values.size() - begin);
      if (std::memcmp(&values[begin], expected.data(), size * sizeof(float)) != 0)
        fail(ErrorKind::check_failed, "{}, {} bytes: the parameters are wrong after {} pushes",
             to_string(contestant.kind), values.size_bytes(), contestant.exchanges[unit]);
    }
  }

  double seconds_of(std::size_t iterations, const auto& work) {
    const Moment start = clock_.now();
    for (std::size_t i = 0; i < iterations; ++i) work();
    return seconds(clock_.now() - start) / static_cast<double>(iterations);
  }

  void measure(std::size_t unit, Json& rows) {
    const std::size_t bytes = options_.sizes[unit];
    const std::size_t iterations = options_.iterations > 0
                                       ? options_.iterations
                                       : std::clamp<std::size_t>((std::size_t{256} << 20) / bytes, 4, 2000);
    for (Contestant& contestant : contestants_) {
      contestant.apart = contestant.fused = {};
      for (std::size_t i = 0; i < options_.warm_up + 1; ++i)
        for (const bool fused : {false, true}) {
          exchange(contestant, unit, fused);
          verify(contestant, unit);
        }
    }
    Samples floor;
    for (std::size_t round = 0; round < options_.rounds; ++round) {
      for (Contestant& contestant : contestants_) {
        contestant.apart.values.push_back(seconds_of(iterations, [&] { exchange(contestant, unit, false); }));
        contestant.fused.values.push_back(seconds_of(iterations, [&] { exchange(contestant, unit, true); }));
      }
      floor.values.push_back(seconds_of(iterations, [&] {
        std::memcpy(copied_[0].bytes().data(), copied_[1].bytes().data(), bytes);
        std::memcpy(copied_[1].bytes().data(), copied_[0].bytes().data(), bytes);
      }));
    }
    if (options_.check)
      for (Contestant& contestant : contestants_) verify(contestant, unit);
    for (const Contestant& contestant : contestants_) rows.push_back(print(contestant, bytes, iterations));
    out::print("{:>6}  {:<14} {:>12.1f} {:>8.0f}% {:>8.2f}\n", short_bytes(bytes), "memcpy twice", 1e6 * floor.median(),
               100 * floor.spread(), rate(bytes, floor.median()));
    std::fflush(stdout);  // the next size may take a while
    rows.push_back({{"bytes", bytes}, {"exchange", "memcpy"}, {"push_pull_s", floor.values}});
  }

  static double rate(std::size_t bytes, double seconds) { return 2e-9 * static_cast<double>(bytes) / seconds; }

  Json print(const Contestant& contestant, std::size_t bytes, std::size_t iterations) {
    const Samples& apart = contestant.apart;
    const Samples& fused = contestant.fused;
    std::string ratio;
    const Contestant& baseline = contestants_.back();
    const bool compared = contestant.kind == Kind::tcp || contestant.kind == Kind::tcp_encrypted;
    if (compared) ratio = fmt::format("{:.2f}", baseline.apart.median_ratio(apart));
    out::print("{:>6}  {:<14} {:>12.1f} {:>8.0f}% {:>8.2f} {:>12.1f} {:>9.2f} {:>7.2f} {:>7}\n", short_bytes(bytes),
               to_string(contestant.kind), 1e6 * apart.median(), 100 * apart.spread(), rate(bytes, apart.median()),
               1e6 * fused.median(), rate(bytes, fused.median()), fused.median_ratio(apart), ratio);
    Json row{{"bytes", bytes},
             {"exchange", to_string(contestant.kind)},
             {"iterations", iterations},
             {"push_pull_s", apart.values},
             {"fused_s", fused.values}};
    if (compared) row["ratio"] = baseline.apart.median_ratio(apart);
    return row;
  }

  const PushPullOptions options_;
  const SystemClock clock_;
  MemoryLedger memory_;
  std::vector<std::size_t> elements_;
  ServerProcesses servers_;
  std::vector<Contestant> contestants_;
  Buffer copied_[2];
};

}  // namespace

void bench_push_pull(const PushPullOptions& options) { PushPull(options).run(); }

}  // namespace psring::bench
