// Codecs in a device's memory against the host's codecs: the same encoded bytes, and the same bits of decoded values.
// Compiled twice: for the host (support/cuda_on_host), and for a GPU if there is one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/device.h>
#include <psring/optim/codec/compression.h>
#include <psring/worker/state/compressor.h>

using namespace psring;

namespace {

Device& device() {
  static const std::unique_ptr<Device> one = make_cuda_device(0);
  return *one;
}

/// A copy of elements in the device's memory.
class Copied {
 public:
  explicit Copied(ConstElements values)
      : buffer_(std::max<std::size_t>(values.size_bytes(), 1), Category::communication, ledger_, device()),
        elements_(buffer_.elements(DType::u8).data(), values.size(), values.type(), &device()) {
    copy(values, elements_);
  }
  operator Elements() const { return elements_; }
  operator ConstElements() const { return elements_; }

 private:
  MemoryLedger ledger_;
  Buffer buffer_;
  Elements elements_;
};

std::vector<float> normal(std::size_t size, std::uint32_t stream) {
  const CounterRng rng({.seed = 3, .tensor = stream});
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = rng.normal(i);
  return values;
}

struct Case {
  const char* name;
  float (*value)(float normal, std::size_t i);
};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

const Case kCases[] = {
    {"normal", [](float x, std::size_t) { return x; }},
    {"small", [](float x, std::size_t) { return x * 0x1p-124F; }},
    {"denormal", [](float x, std::size_t i) { return static_cast<float>(i % 7) * (x < 0 ? -kTiny : kTiny); }},
    {"huge", [](float x, std::size_t) { return x < 0 ? -0x1p127F : 0x1p127F; }},
    {"zero", [](float x, std::size_t) { return x < 0 ? -0.0F : 0.0F; }},
    {"ties", [](float x, std::size_t) { return x < 0   ? -1.0F
                                               : x < 1 ? 1.0F
                                                       : 2.0F; }},
    {"one size", [](float x, std::size_t) { return x < 0 ? -1.0F : 1.0F; }},
    {"of all sizes", [](float x, std::size_t i) { return std::ldexp(x, static_cast<int>(i * 37 % 250) - 125); }},
    {"infinite", [](float x, std::size_t i) { return i % 301 == 0 ? -kInfinity : x; }},
    {"no number", [](float x, std::size_t i) { return i % 301 == 0 ? kNaN : x; }},
};

bool same_bits(const std::vector<std::byte>& a, const std::vector<std::byte>& b) { return a == b; }
/// NaNs are equal whatever their bits, which are the processor's own.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) {
    return (std::isnan(x) && std::isnan(y)) || std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

void check_like_host(const std::string& text, bool feedback, const std::vector<float>& values) {
  const auto host = optim::make_codec(text, feedback);
  const auto there = optim::make_device_codec(text, feedback, device());
  const optim::GradientId id{.seed = 5, .step = 7, .micro = 1, .unit = 2, .begin = 512, .worker = 3};
  std::vector<std::byte> bytes(host->bytes(values.size()));
  REQUIRE(there->encoding() == host->encoding());
  REQUIRE(there->bytes(values.size()) == bytes.size());
  host->encode(values, id, std::span(bytes));
  const Copied values_there{ConstElements(values)};
  const std::vector<std::byte> before(bytes.size() + 64, std::byte{0x55});
  const Copied room_there{std::span(before)};
  const Elements bytes_there = Elements(room_there).subspan(0, bytes.size());
  for (int again = 0; again < 2; ++again) {  // a call leaves the scratch memory ready for the next call
    there->encode(values_there, id, bytes_there);
    std::vector<std::byte> written(before.size());
    copy(ConstElements(room_there), std::span(written));
    CHECK(std::ranges::all_of(std::span(written).subspan(bytes.size()), [](auto b) { return b == std::byte{0x55}; }));
    written.resize(bytes.size());
    const bool copies = text == "int8" || text.starts_with("top-k");
    if (copies || std::ranges::none_of(values, [](float x) { return std::isnan(x); })) CHECK(same_bits(written, bytes));
  }
  std::vector<float> read(values.size());
  host->decode(std::span(bytes), id, read);
  std::vector<float> got(values.size(), 77);
  const Copied got_there{ConstElements(got)};
  there->decode(bytes_there, id, got_there);
  copy(ConstElements(got_there), got);
  CHECK(same_bits(got, read));
}

}  // namespace

TEST_CASE("codecs have the host's bits on a device") {
  const auto* const text = GENERATE("bf16", "int8", "sign", "top-k:ratio=0.01", "top-k:ratio=0.3", "top-k:ratio=1",
                                    "random-k:ratio=0.01", "random-k:ratio=0.3", "random-k:ratio=1");
  for (const std::size_t size : {0, 1, 2, 7, 255, 256, 257, 1023, 1024, 1025, 5000}) {
    const std::vector<float> from = normal(size, static_cast<std::uint32_t>(size));
    for (const Case& each : kCases) {
      CAPTURE(text, size, each.name);
      std::vector<float> values(size);
      for (std::size_t i = 0; i < size; ++i) values[i] = each.value(from[i], i);
      check_like_host(text, true, values);
    }
    check_like_host(text, false, from);
  }
}

TEST_CASE("top-k of many elements, of which a sample tells what is large") {
  for (const std::size_t size : {std::size_t{65535}, std::size_t{65536}, (std::size_t{1} << 20) + 3000}) {
    CAPTURE(size);
    const std::vector<float> from = normal(size, 1);
    const auto check = [&](float (*value)(float normal, std::size_t i)) {
      std::vector<float> values(size);
      for (std::size_t i = 0; i < size; ++i) values[i] = value(from[i], i);
      for (const auto* const text : {"top-k:ratio=0.0001", "top-k:ratio=0.01", "top-k:ratio=0.125"})
        check_like_host(text, true, values);
    };
    check([](float x, std::size_t) { return x; });
    check([](float x, std::size_t) { return std::round(x * 4); });                     // most magnitudes are equal
    check([](float, std::size_t) { return 1.0F; });                                    // more candidates than room
    check([](float x, std::size_t i) { return i < 20000 ? x : 0.0F; });                // all in one place
    check([](float x, std::size_t i) { return i % 768 == 5 ? 100 * x : x; });          // all in one column
    check([](float x, std::size_t i) { return i / 4 % 64 < 2 ? 100 * x : x; });        // in some places of a group
    check([](float x, std::size_t i) { return i % 5000 == 4999 ? 1000 + x : 0.0F; });  // fewer than are kept
    check([](float x, std::size_t i) { return i % 301 == 0 ? kNaN : i % 7 == 0 ? kInfinity : x; });
  }
  const std::vector<float> values = normal((std::size_t{1} << 20) + 3000, 2);
  check_like_host("top-k:ratio=0.3", true, values);
}

TEST_CASE("places beyond the end are written nowhere") {
  const auto codec = optim::make_device_codec("top-k:ratio=0.5", true, device());
  const std::vector<std::uint32_t> words{1, 0x3f800000, 4, 0x3f800000};
  const Copied bytes{std::span(reinterpret_cast<const std::byte*>(words.data()), 16)};
  std::vector<float> out(6, 77);
  const Copied out_there{ConstElements(out)};
  codec->decode(bytes, {}, Elements(out_there).subspan(0, 4));
  copy(ConstElements(out_there), out);
  CHECK(out == std::vector<float>{0, 1, 0, 0, 77, 77});
}

TEST_CASE("bytes of another size are refused") {
  const auto codec = optim::make_device_codec("int8", true, device());
  const std::vector<std::byte> few(100);
  const std::vector<float> floats(100);
  const Copied bytes{std::span(few)};
  const Copied values{ConstElements(floats)};
  CHECK_THROWS_WITH(codec->decode(bytes, {}, values), Catch::Contains("100 elements in 100 bytes, 104 expected"));
  CHECK(optim::make_device_codec("none", true, device()) == nullptr);
  CHECK_THROWS_WITH(optim::make_device_codec("int4", true, device()), Catch::Contains("--compress"));
}

TEST_CASE("what error feedback keeps on a device has the host's bits, and so has the mean of all workers") {
  const auto* const text = GENERATE("bf16", "int8", "sign", "top-k:ratio=0.05", "random-k:ratio=0.05");
  const bool feedback = GENERATE(true, false);
  const bool scaled = GENERATE(true, false);
  CAPTURE(text, feedback, scaled);
  // There is padding between tensors and at the end.
  const Layout layout = make_layout({{"u",
                                      {{{"a", {300}, {Init::Kind::normal, 1}}, 0},
                                       {{"b", {900}, {Init::Kind::normal, 1}}, 0},
                                       {{"c", {5}, {Init::Kind::normal, 1}}, 0}}}},
                                    2);
  const std::size_t size = layout.units[0].elements;
  const std::vector<worker::Compressor::Part> parts{{0, {0, 512}}, {0, {512, size}}};
  MemoryLedger host_ledger;
  MemoryLedger ledger;
  const auto host_codec = optim::make_codec(text, feedback);
  const auto codec = optim::make_device_codec(text, feedback, device());
  std::optional<worker::ErrorFeedback> host_feedback;
  std::optional<worker::ErrorFeedback> feedback_there;
  if (feedback) {
    host_feedback.emplace(layout, host_ledger);
    feedback_there.emplace(layout, ledger, &device());
  }
  worker::Compressor host(*host_codec, feedback ? &*host_feedback : nullptr, layout, parts, 1, 0, host_ledger);
  worker::Compressor there(*codec, feedback ? &*feedback_there : nullptr, layout, parts, 1, 0, ledger, &device());
  optim::LossScaler scaler = scaled ? optim::LossScaler::dynamic() : optim::LossScaler();
  for (auto* each : {&host_feedback, &feedback_there})
    if (feedback) (*each)->follow([&scaler] { return scaler; }, scaled);
  for (const Category category : {Category::optimizer, Category::communication})
    CHECK(ledger.current_bytes(category) == host_ledger.current_bytes(category));
  for (std::uint32_t step = 0; step < 3; ++step) {
    std::vector<float> gradient = normal(size, 100 + step);
    clear_padding(layout.units[0], {0, size}, gradient);
    const Copied gradient_there{ConstElements(gradient)};
    const auto bytes = host.encode(0, step, 0, gradient).bytes();
    const ConstElements bytes_there = there.encode(0, step, 0, gradient_there);
    std::vector<std::byte> written(bytes_there.size());
    copy(bytes_there, std::span(written));
    CHECK(std::ranges::equal(written, bytes));
    const std::size_t first = host_codec->bytes(512);
    const ConstElements first_bytes = bytes.first(first);
    const Copied mean_there{ConstElements(gradient)};
    there.mean(
        0, {0, 512}, step, 0,
        std::vector<worker::Compressor::Written>{
            {0, bytes_there.subspan(0, first)}, {1, bytes_there.subspan(0, first)}, {4, bytes_there.subspan(0, first)}},
        Elements(mean_there).subspan(0, 512));
    host.mean(0, {0, 512}, step, 0,
              std::vector<worker::Compressor::Written>{{0, first_bytes}, {1, first_bytes}, {4, first_bytes}},
              Elements(gradient).subspan(0, 512));
    std::vector<float> mean(size);
    copy(ConstElements(mean_there), mean);
    CHECK(mean == gradient);
    if (scaled) scaler.finished(step != 1);  // step 1 is skipped
    if (!feedback) continue;
    for (auto* each : {&host_feedback, &feedback_there}) (*each)->settle();
    std::vector<float> kept(size);
    copy(ConstElements(feedback_there->residual(0)), kept);
    CHECK(std::ranges::equal(kept, host_feedback->residual(0).as<float>()));
  }
}
