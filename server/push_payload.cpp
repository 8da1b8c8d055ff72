#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/server/push_payload.h>

namespace psring::server {
namespace {

/// Holds bytes that are booked while the object lives. They lie in malloc's memory, which is reused.
struct HeldBytes {
  HeldBytes(std::vector<std::byte> held, MemoryLedger& booked_in) : bytes(std::move(held)), ledger(booked_in) {
    ledger.book(Category::communication, bytes.size());
  }
  ~HeldBytes() { ledger.release(Category::communication, bytes.size()); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  const std::vector<std::byte> bytes;
  MemoryLedger& ledger;
};

}  // namespace

void copy_payload(net::Message& push, MemoryLedger& ledger) {
  std::vector bytes(push.payload.begin(), push.payload.end());
  const auto held = std::make_shared<const HeldBytes>(std::move(bytes), ledger);  // shared: a message's holder is
  push.payload = held->bytes;
  push.holder = held;
}

void PushPayloads::open(DType gradient_type, std::size_t largest) {
  gradient_type_ = gradient_type;
  largest_ = largest;
  if (options_.codec != nullptr)
    decoded_ = Buffer(options_.pushes_at_once() * largest * sizeof(float), Category::communication, ledger_);
}

Elements PushPayloads::decoded(std::size_t push, std::size_t elements) {
  return decoded_.elements(DType::f32).part({push * largest_, push * largest_ + elements});
}

std::vector<ConstElements> PushPayloads::of(std::span<const net::Message* const> pushes, const UnitLayout& unit) {
  std::vector<ConstElements> gradients;
  check(options_.codec == nullptr || pushes.size() <= options_.pushes_at_once(), "{} pushes to decode", pushes.size());
  for (const net::Message* push : pushes) {
    const net::FrameHeader& header = push->header;
    const std::size_t elements = header.range().size();
    if (options_.codec == nullptr) {
      gradients.emplace_back(push->payload.data(), elements, gradient_type_);
      continue;
    }
    const Elements values = decoded(gradients.size(), elements);
    options_.codec->decode(push->payload,
                           {options_.seed, header.step, header.micro, header.unit, header.begin, header.sender_rank},
                           values);
    // A codec may read other values than zero in the padding, as a sign is never zero.
    clear_padding(unit, header.range(), values.as<float>());
    gradients.emplace_back(values);
  }
  return gradients;
}

}  // namespace psring::server
