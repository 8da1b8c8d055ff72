#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>

#include <psring/common/base/text/error.h>

namespace psring::fuzz {

/// The bytes of a run, taken from the front; where they have ended, zeros.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> take(std::size_t count) {
    const auto taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() { return take(bytes_.size()); }
  std::string_view text() {
    const auto all = rest();
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }
  template <class T>
  T number() {
    T value{};
    const auto taken = take(sizeof value);
    if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  /// 0 … most, from one byte.
  std::size_t below(std::size_t end) { return byte() % end; }
  /// A number that is small, near the ends, or any: what a decoder compares with.
  std::uint64_t odd_number() {
    const std::uint8_t how = byte();
    if (how < 128) return how;
    if (how < 192) return ~std::uint64_t{0} - (how - 128);
    if (how < 250) return std::uint64_t{1} << (how - 192);
    return number<std::uint64_t>();
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Runs the target with one input. Returns, or ends the process: any exception is a finding.
void run(Input in);

/// Ends the process: a finding.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: not held: %s\n", what);
  std::abort();
}

/// Calls `body`; an error of this kind is how it refuses bytes. Any other is a finding. True where it did not refuse.
template <class Body>
bool refuses(std::initializer_list<ErrorKind> kinds, Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (std::find(kinds.begin(), kinds.end(), error.kind()) == kinds.end()) throw;
    require(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error of one line");
    return false;
  }
}
template <class Body>
bool refuses(ErrorKind kind, Body&& body) {
  return refuses({kind}, body);
}

}  // namespace psring::fuzz

// The one entry that libFuzzer and replay.cpp call: kept, though nothing here does.
extern "C" [[gnu::used]] inline int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  psring::fuzz::run(psring::fuzz::Input({reinterpret_cast<const std::byte*>(data), size}));
  return 0;
}
