// Compressed gradients: of any bytes of the right size values come, or a refusal.
#include <vector>

#include <psring/optim/codec/compression.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  static const char* const kCodecs[] = {"bf16",         "int8", "sign", "top-k:ratio=0.1", "random-k:ratio=0.1",
                                        "top-k:ratio=1"};
  const auto codec = optim::make_codec(kCodecs[in.below(std::size(kCodecs))], in.below(2) == 0);
  const optim::GradientId id{.seed = in.byte(), .step = in.odd_number(), .unit = in.byte(), .worker = in.byte()};
  std::vector<float> values(1 + in.number<std::uint16_t>() % 4096);
  std::vector<std::byte> bytes(in.below(16) == 0 ? in.byte() : codec->bytes(values.size()));
  std::ranges::copy(in.take(bytes.size()), bytes.begin());
  refuses(ErrorKind::protocol, [&] {
    codec->decode(std::span(bytes), id, values);
    std::vector<std::byte> again(codec->bytes(values.size()));
    codec->encode(values, id, std::span(again));  // of whatever values they were
  });
}
