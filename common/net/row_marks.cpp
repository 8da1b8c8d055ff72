#include <bit>
#include <cstring>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_marks.h>

namespace psring::net {

std::size_t count_of(const Marks& marks) {
  std::size_t count = 0;
  for (const std::uint64_t word : marks) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

Marks marks_of(std::span<const std::uint8_t> ones) {
  Marks marks(mark_bytes(ones.size()) / sizeof(std::uint64_t));
  for (std::size_t key = 0; key < ones.size(); ++key) marks[key / 64] |= std::uint64_t{ones[key]} << key % 64;
  return marks;
}

Marks read_marks(std::span<const std::byte> bytes, std::size_t keys) {
  Marks marks(bytes.size() / sizeof(std::uint64_t));
  if (marks.empty()) return marks;
  std::memcpy(marks.data(), bytes.data(), marks.size() * sizeof(std::uint64_t));
  if (keys % 64 != 0 && marks.back() >> keys % 64 != 0)
    fail(ErrorKind::protocol, "a frame of rows with bits for more than its {} keys", keys);
  return marks;
}

std::size_t keys_in(std::size_t bytes, std::size_t key_bytes, bool marked) {
  const auto bytes_of = [&](std::size_t keys) { return keys * key_bytes + (marked ? mark_bytes(keys) : 0); };
  std::size_t keys = marked ? bytes * 8 / (key_bytes * 8 + 1) : bytes / key_bytes;
  while (bytes_of(keys) > bytes) --keys;  // once at most: the bits are of whole words
  if (bytes_of(keys) != bytes)
    fail(ErrorKind::protocol, "a pull of {} bytes of keys, which are no whole number of keys", bytes);
  return keys;
}

void scatter(std::span<const std::byte> rows, const Marks& marks, bool set, std::span<std::byte> into,
             std::size_t row_bytes) {
  const std::byte* from = rows.data();
  for (std::size_t row = 0; row * row_bytes < into.size(); ++row) {
    if (is_marked(marks, row) != set) continue;
    std::memcpy(into.data() + row * row_bytes, from, row_bytes);
    from += row_bytes;
  }
}

}  // namespace psring::net
