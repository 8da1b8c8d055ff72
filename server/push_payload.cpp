#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <psring/server/push_payload.h>

namespace psring::server {
namespace {

/// Bytes that are booked for as long as they live. They lie in malloc's memory, which is reused.
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

void replace_payload(std::vector<std::byte> bytes, net::Message& push, MemoryLedger& ledger) {
  const auto held = std::make_shared<const HeldBytes>(std::move(bytes), ledger);  // shared: a message's holder is
  push.payload = held->bytes;
  push.holder = held;
}

}  // namespace

void copy_payload(net::Message& push, MemoryLedger& ledger) {
  replace_payload(std::vector(push.payload.begin(), push.payload.end()), push, ledger);
}

void decode_payload(net::Message& push, const ShardOptions& options, const UnitLayout& unit, MemoryLedger& ledger) {
  const net::FrameHeader& header = push.header;
  std::vector<std::byte> bytes(header.range().size() * sizeof(float));
  const auto values = Elements(bytes.data(), header.range().size(), DType::f32).as<float>();
  options.codec->decode(
      push.payload, {options.seed, header.step, header.micro, header.unit, header.begin, header.sender_rank}, values);
  clear_padding(unit, header.range(), values);
  replace_payload(std::move(bytes), push, ledger);
}

}  // namespace psring::server
