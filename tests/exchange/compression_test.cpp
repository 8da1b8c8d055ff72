// Compressed gradients: encoding and decoding, the residuals of error feedback, and whole jobs.
#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/codec/compression.h>
#include <psring/tests/support/in_process_job.h>
#include <psring/tests/support/values.h>
#include <psring/worker/state/compressor.h>

using namespace psring;
using namespace psring::test;

namespace {

constexpr const char* kCodecs[] = {"bf16", "int8", "sign", "top-k:ratio=0.05", "random-k:ratio=0.05"};

std::vector<float> there_and_back(const optim::Codec& codec, const std::vector<float>& values,
                                  const optim::GradientId& id = {}) {
  std::vector<std::byte> bytes(codec.bytes(values.size()));
  codec.encode(values, id, std::span(bytes));
  std::vector<float> read(values.size(), 77);
  codec.decode(std::span(bytes), id, read);
  return read;
}

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("codecs take the bytes that they promise, and any number of elements") {
  const auto bytes = [](const char* text, std::size_t n) { return optim::make_codec(text, true)->bytes(n); };
  CHECK(bytes("bf16", 1000) == 2000);
  CHECK(bytes("int8", 1000) == 1000 + 4 * 4);
  CHECK(bytes("sign", 1000) == 125 + 4);
  CHECK(bytes("sign", 1025) == 129 + 8);
  CHECK(bytes("top-k:ratio=0.01", 1000) == 10 * 8);
  CHECK(bytes("random-k:ratio=0.01", 1000) == 10 * 4);
  CHECK(bytes("top-k:ratio=0.01", 7) == 8);  // at least one
  CHECK(bytes("top-k:ratio=1", 7) == 56);
  for (const char* text : kCodecs)
    for (const std::size_t n : {0, 1, 2, 7, 255, 256, 257, 1023, 1024, 1025, 5000}) {
      CAPTURE(text, n);
      const std::vector<float> values = normal_values(n, 3);
      const std::vector<float> read = there_and_back(*optim::make_codec(text, true), values);
      for (const float v : read) CHECK(std::isfinite(v));
    }
}

TEST_CASE("int8 is within half a step of its block's scale, bf16 within its own") {
  const std::vector<float> values = normal_values(1000, 1);
  const std::vector<float> eight = there_and_back(*optim::make_codec("int8", true), values);
  const std::vector<float> sixteen = there_and_back(*optim::make_codec("bf16", true), values);
  for (std::size_t b = 0; b < 1000; b += 256) {
    const std::size_t end = std::min<std::size_t>(1000, b + 256);
    float most = 0;
    for (std::size_t i = b; i < end; ++i) most = std::max(most, std::abs(values[i]));
    for (std::size_t i = b; i < end; ++i) CHECK(std::abs(eight[i] - values[i]) <= 0.5001F * most / 127);
  }
  for (std::size_t i = 0; i < 1000; ++i) CHECK(std::abs(sixteen[i] - values[i]) <= std::abs(values[i]) / 256);
}

TEST_CASE("what is finite stays finite, however small or large") {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kHuge = 0x1p127F;
  std::vector<float> denormals(1500);
  for (std::size_t i = 0; i < denormals.size(); ++i)
    denormals[i] = static_cast<float>(i % 7) * (i % 2 ? kTiny : -kTiny);
  std::vector<float> mixed = normal_values(1500, 6);
  for (std::size_t i = 0; i < mixed.size(); i += 3) mixed[i] = denormals[i + 1];
  std::vector<float> small = mixed;  // the largest of a block is normal, but 127 / largest overflows
  for (float& value : small) value *= 0x1p-124F;
  std::vector<float> huge(1500, kHuge);
  huge[1] = -kHuge;
  for (const char* text : kCodecs)
    for (const std::vector<float>& values : {denormals, mixed, small, huge}) {
      CAPTURE(text, values[0], values[1]);
      const std::vector<float> read = there_and_back(*optim::make_codec(text, true), values);
      for (const float value : read) CHECK(std::isfinite(value));
    }
  const auto int8 = optim::make_codec("int8", true);
  // Values that are too small for a scale become zero: error feedback keeps all of them.
  for (const std::vector<float>& values : {denormals, small})
    CHECK(there_and_back(*int8, values) == std::vector<float>(values.size()));
  const auto sign = optim::make_codec("sign", true);
  CHECK(there_and_back(*sign, huge)[0] == Approx(kHuge));
  CHECK(there_and_back(*sign, huge)[1] == Approx(-kHuge));
  huge[2] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(there_and_back(*sign, huge)[0]));  // so that the step is detected as non-finite
}

TEST_CASE("sign keeps signs and each block's mean magnitude") {
  const std::vector<float> values = normal_values(1500, 2);
  const std::vector<float> read = there_and_back(*optim::make_codec("sign", true), values);
  double sum = 0;
  for (std::size_t i = 0; i < 1024; ++i) sum += std::abs(values[i]);
  for (std::size_t i = 0; i < 1500; ++i) {
    CHECK(std::signbit(read[i]) == std::signbit(values[i]));
    CHECK(std::abs(read[i]) == std::abs(read[i < 1024 ? 0 : 1024]));
  }
  CHECK(std::abs(read[0]) == Approx(sum / 1024).epsilon(1e-5));
}

TEST_CASE("top-k keeps the largest, of equal ones the first") {
  const std::vector<float> values{0.5F, -3, 1, 1, -1, 2, 0, 1};
  CHECK(there_and_back(*optim::make_codec("top-k:ratio=0.5", true), values) ==
        std::vector<float>{0, -3, 1, 1, 0, 2, 0, 0});
  CHECK(there_and_back(*optim::make_codec("top-k:ratio=1", true), values) == values);
  std::vector<float> broken = values;
  broken[6] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(there_and_back(*optim::make_codec("top-k:ratio=0.125", true), broken)[6]));
}

TEST_CASE("random-k draws one of each run, others in each step, the same at both ends") {
  const auto codec = optim::make_codec("random-k:ratio=0.1", true);
  const std::vector<float> values = normal_values(1000, 4);
  const auto chosen = [&](const optim::GradientId& id) {
    const std::vector<float> read = there_and_back(*codec, values, id);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < read.size(); ++i)
      if (read[i] != 0) {
        CHECK(read[i] == values[i]);
        places.push_back(i);
      }
    return places;
  };
  const auto first = chosen({.seed = 1});
  REQUIRE(first.size() == 100);
  for (std::size_t i = 0; i < 100; ++i) CHECK(first[i] / 10 == i);
  CHECK(chosen({.seed = 1}) == first);
  for (const optim::GradientId& other : {optim::GradientId{.seed = 2},
                                         {.seed = 1, .step = 1},
                                         {.seed = 1, .micro = 1},
                                         {.seed = 1, .unit = 1},
                                         {.seed = 1, .begin = 1000},
                                         {.seed = 1, .worker = 1}})
    CHECK(chosen(other) != first);
  // Without error feedback the expectation of the values is right.
  const std::vector<float> scaled =
      there_and_back(*optim::make_codec("random-k:ratio=0.1", false), values, {.seed = 1});
  CHECK(scaled[first[7]] == 10 * values[first[7]]);
}

TEST_CASE("what is no number can be seen after every codec that reads it") {
  std::vector<float> values = normal_values(600, 5);
  values[300] = std::numeric_limits<float>::infinity();
  for (const char* text : {"bf16", "int8", "sign", "top-k"}) {
    CAPTURE(text);
    const std::vector<float> read = there_and_back(*optim::make_codec(text, true), values);
    CHECK(std::any_of(read.begin(), read.end(), [](float v) { return !std::isfinite(v); }));
  }
}

TEST_CASE("one non-finite element is seen after every codec, wherever it lies and whatever random-k draws") {
  for (const char* text : kCodecs)
    for (const bool feedback : {true, false})
      for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()})
        for (const std::size_t place : {0, 1, 255, 299, 300, 301, 599}) {
          CAPTURE(text, feedback, bad, place);
          std::vector<float> values = normal_values(600, 5);
          values[place] = bad;
          const std::vector<float> read = there_and_back(*optim::make_codec(text, feedback), values);
          CHECK_FALSE(std::ranges::all_of(read, [](float v) { return std::isfinite(v); }));
        }
}

TEST_CASE("bytes that no values give are refused") {
  for (const char* text : kCodecs) {
    std::vector<float> out(100);
    CHECK(error_of([&] { optim::make_codec(text, true)->decode({}, {}, out); }).find("expected") != std::string::npos);
  }
  const auto codec = optim::make_codec("top-k:ratio=0.02", true);
  std::vector<float> out(100);
  const auto places = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t words[4] = {a, 0x3f800000, b, 0x3f800000};
    return error_of([&] { codec->decode(std::span<const std::byte>(std::as_bytes(std::span(words))), {}, out); });
  };
  CHECK(places(3, 99) == "none");
  for (const auto& [a, b] : {std::pair{3, 100}, {3, 3}, {4, 3}, {-1, 3}})
    CHECK(places(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b)).find("element") != std::string::npos);
}

TEST_CASE("a codec is named, its ratio within reason") {
  CHECK(optim::make_codec("none", true) == nullptr);
  for (const char* text : {"int4", "top-k:ratio=0", "top-k:ratio=2", "top-k:k=5", "sign:1"})
    CHECK(error_of([&] { optim::make_codec(text, true); }).find("--compress") != std::string::npos);
}

TEST_CASE("with error feedback nothing is lost: what was sent and what is kept add up to all gradients") {
  const Layout layout = make_layout({{"u", {{{"a", {512}, {Init::Kind::normal, 1}}, 0}}}}, 1);
  for (const char* text : kCodecs) {
    CAPTURE(text);
    MemoryLedger ledger;
    const auto codec = optim::make_codec(text, true);
    worker::ErrorFeedback feedback(layout, ledger);
    worker::Compressor compressor(*codec, &feedback, layout, {{0, {0, 512}}}, 1, 0, ledger);
    CHECK(ledger.peak_bytes(Category::optimizer) == 512 * 4);
    CHECK(ledger.peak_bytes(Category::communication) == codec->bytes(512) + 512 * 4);  // and room to decode one part
    std::vector<double> given(512);
    std::vector<double> sent(512);
    for (std::uint64_t step = 0; step < 200; ++step) {
      const std::vector<float> gradient = normal_values(512, 100 + step);
      const auto bytes = compressor.encode(0, {0, 512}, step, 0, gradient);
      std::vector<float> read(512);
      codec->decode(bytes, compressor.id(0, 0, step, 0, 0), read);
      for (std::size_t i = 0; i < 512; ++i) {
        given[i] += gradient[i];
        sent[i] += read[i];
      }
    }
    double lost = 0;
    double all = 0;
    for (std::size_t i = 0; i < 512; ++i) {
      lost += (given[i] - sent[i]) * (given[i] - sent[i]);
      all += given[i] * given[i];
    }
    // The residual after 200 gradients is as large as the loss of a few steps, whatever the number of steps.
    CHECK(lost < 0.5 * all);
  }
}

namespace {

JobOptions small_job(const std::string& strategy, const std::string& compress, std::size_t workers) {
  JobOptions job = test::small_job("mlp:20-33-17-5", 9);
  job.strategy = strategy;
  job.compress = compress;
  job.workers = workers;
  job.servers = strategy.starts_with("ps") ? 2 : 0;
  job.optimizer = "sgd";
  job.lr = 0.1;
  return job;
}

void check_predicted(const JobRun& run) {
  for (const WorkerRun& worker : run.workers) {
    CHECK(worker.sent == run.steps * worker.predicted.worker_sends.value());
    CHECK(worker.received == run.steps * worker.predicted.worker_receives.value());
    CHECK(worker.peaks == worker.predicted.worker_memory);
    CHECK((worker.model == run.workers[0].model));
  }
}

}  // namespace

TEST_CASE("compressed jobs move the bytes that are promised, and all workers end with one model") {
  for (const char* strategy : {"ps", "ps-zero2", "ps-zero3", "ddp", "zero1", "zero2", "zero3"})
    for (const char* compress : kCodecs)
      for (const bool feedback : {true, false})
        for (const Links links : {Links::shm, Links::tcp}) {
          CAPTURE(strategy, compress, feedback);
          JobOptions job = small_job(strategy, compress, 3);
          job.error_feedback = feedback;
          check_predicted(run_job(job, links));
        }
}

TEST_CASE("top-k of everything changes no bit") {
  for (const char* strategy : {"ps", "ps-zero2", "ddp", "zero1", "zero2", "zero3"}) {
    CAPTURE(strategy);
    const JobRun whole = run_job(small_job(strategy, "none", 3), Links::shm);
    const JobRun compressed = run_job(small_job(strategy, "top-k:ratio=1", 3), Links::shm);
    CHECK((compressed.workers[0].model == whole.workers[0].model));
  }
}

TEST_CASE("owners read what they are sent alike in all stages, of every micro-batch, and whoever owns what again") {
  for (const char* compress : kCodecs) {
    CAPTURE(compress);
    std::vector<std::string> models;
    for (const char* strategy : {"zero1", "zero2", "zero3"}) {
      models.push_back(run_job(small_job(strategy, compress, 3), Links::shm).workers[0].model);
      JobOptions job = small_job(strategy, compress, 4);
      job.accumulate = 3;
      for (const char* group : {"", "2", "1"})
        for (const Links links : {Links::shm, Links::tcp}) {
          CAPTURE(strategy, group);
          job.shard_group = group;
          check_predicted(run_job(job, links));
        }
    }
    CHECK((models[1] == models[0]));
    CHECK((models[2] == models[0]));
  }
  JobOptions job = small_job("zero3", "int8", 3);
  const std::string model = run_job(job, Links::shm).workers[0].model;
  job.share_host_parameters = true;
  const JobRun in_place = run_job(job, Links::shm);
  check_predicted(in_place);
  CHECK((in_place.workers[0].model == model));
}

TEST_CASE("compression goes with asynchrony, and with sums of a host") {
  JobOptions job = small_job("ps", "int8", 3);
  job.consistency = "asp";
  check_predicted(run_job(job, Links::shm));
  job.consistency = "bsp";
  job.local_reduce = true;
  const JobRun run = run_job(job, Links::shm, nullptr, {0, 2});
  CHECK((run.workers[2].model == run.workers[0].model));
}

TEST_CASE("low-rank factors move the bytes that are promised, and lead to one model, whatever the buckets") {
  for (const char* compress : {"power-sgd:rank=1", "power-sgd"})
    for (const bool feedback : {true, false}) {
      std::vector<std::string> models;
      for (const char* strategy : {"ddp", "zero1"})
        for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{25} << 20})
          for (const bool overlap : {true, false}) {
            CAPTURE(strategy, compress, feedback, bucket_bytes, overlap);
            JobOptions job = small_job(strategy, compress, 3);
            job.error_feedback = feedback;
            job.bucket_bytes = bucket_bytes;
            job.overlap = overlap;
            job.accumulate = 2;
            check_predicted(run_job(job, Links::tcp));
            const JobRun run = run_job(job, Links::shm);
            check_predicted(run);
            models.push_back(run.workers[0].model);
          }
      for (const std::string& model : models) CHECK((model == models[0]));
    }
}

TEST_CASE("low-rank factors that are not smaller than their matrices change no bit") {
  for (const char* strategy : {"ddp", "zero1"}) {
    const JobRun whole = run_job(small_job(strategy, "none", 3), Links::shm);
    const JobRun compressed = run_job(small_job(strategy, "power-sgd:rank=32", 3), Links::shm);
    CHECK((compressed.workers[0].model == whole.workers[0].model));
  }
}

TEST_CASE("low-rank factors train, and error feedback makes them better") {
  const auto loss = [](const char* compress, bool feedback) {
    JobOptions job = small_job("ddp", compress, 2);
    job.steps = 150;
    job.error_feedback = feedback;
    const JobRun run = run_job(job, Links::shm);
    return (run.workers[0].steps.back().loss + run.workers[1].steps.back().loss) / 2;
  };
  const double whole = loss("none", true);
  const double with = loss("power-sgd:rank=1", true);
  const double without = loss("power-sgd:rank=1", false);
  CAPTURE(whole, with, without);
  CHECK(with < without);
}
