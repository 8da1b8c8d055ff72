#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/device/mapping.h>

using namespace psring;

namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % Arena::kAlignment == 0; }

ErrorKind kind_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  FAIL("no error");
  return ErrorKind::bug;
}

}  // namespace

TEST_CASE("an arena cuts aligned spans, lowest first, and joins the gaps that are freed") {
  Arena arena(1024);
  const auto a = arena.allocate(1);
  const auto b = arena.allocate(64);
  const auto c = arena.allocate(65);
  CHECK(a.data() == arena.base());
  CHECK(b.data() == arena.base() + 64);
  CHECK(c.data() == arena.base() + 128);
  arena.free(a);
  arena.free(c);
  CHECK(arena.allocate(128).data() == arena.base() + 128);  // not in a's gap of 64
  arena.free({arena.base() + 128, 128});
  arena.free(b);
  CHECK(arena.allocate(1024).data() == arena.base());  // one gap again
}

TEST_CASE("an arena that is full says so, and nothing wraps round") {
  Arena arena(1000);
  CHECK(arena.capacity() == 1024);
  CHECK(kind_of([&] { arena.allocate(1025); }) == ErrorKind::usage);
  CHECK(kind_of([&] { arena.allocate(SIZE_MAX); }) == ErrorKind::usage);
  CHECK(arena.allocate(0).empty());
  arena.allocate(1024);
  CHECK(kind_of([&] { arena.allocate(1); }) == ErrorKind::usage);
}

TEST_CASE("whatever is allocated and freed, spans never overlap and are zero") {
  const auto kind = GENERATE(Arena::Kind::local, Arena::Kind::shared);
  Arena arena(1 << 20, kind);
  std::mt19937 random(7);
  std::vector<std::span<std::byte>> held;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 40 || (!held.empty() && random() % 3 == 0)) {
      const std::size_t at = random() % held.size();
      const std::byte mark = held[at][0];
      REQUIRE(std::all_of(held[at].begin(), held[at].end(), [&](std::byte b) { return b == mark; }));
      arena.free(held[at]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const auto span = arena.allocate(1 + random() % 10000);
    REQUIRE(aligned(span.data()));
    REQUIRE(all_zero(span));
    std::memset(span.data(), 1 + static_cast<int>(random() % 255), span.size());
    held.push_back(span);
  }
  for (const auto& span : held) arena.free(span);
  CHECK(arena.allocate(1 << 20).size() == 1 << 20);
}

TEST_CASE("an arena is shared memory that cannot shrink, and is sparse") {
  const std::size_t capacity = std::size_t{64} << 30;
  Arena arena(capacity);
  CHECK(::ftruncate(arena.fd(), 4096) != 0);
  CHECK(checked_size(arena.file()) == capacity);
  const auto span = arena.allocate(100);
  const Mapping other(arena.file(), capacity);
  span[42] = std::byte{9};
  CHECK(other.data()[42] == std::byte{9});
  CHECK(other.data() != arena.base());
}

TEST_CASE("marks are 1 + the offset, and 0 outside") {
  Arena arena(4096);
  const std::byte elsewhere{};
  CHECK(arena.mark(arena.base()) == 1);
  CHECK(arena.mark(arena.base() + 4095) == 4096);
  CHECK(arena.mark(arena.base() + 4096) == 0);
  CHECK(arena.mark(&elsewhere) == 0);
  CHECK(arena.mark(nullptr) == 0);
  CHECK(Arena(4096, Arena::Kind::local).fd() < 0);
}

TEST_CASE("a memory file of others is taken only if it cannot shrink") {
  const Fd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(loose.get(), 4096) == 0);
  CHECK(kind_of([&] { checked_size(loose); }) == ErrorKind::protocol);
  const Fd device(::open("/dev/null", O_RDWR | O_CLOEXEC));
  CHECK(kind_of([&] { checked_size(device); }) == ErrorKind::protocol);
  CHECK(checked_size(make_memory_file("tight", 4096)) == 4096);
}

TEST_CASE("a buffer is booked for its life, wherever it moves") {
  MemoryLedger ledger;
  Arena arena(1 << 20);
  Arena* where = GENERATE_REF(static_cast<Arena*>(nullptr), &arena);
  {
    Buffer a(1000 * sizeof(float), Category::gradients, ledger, where);
    CHECK(aligned(a.bytes().data()));
    CHECK(all_zero(a.bytes()));
    CHECK(a.as<float>().size() == 1000);
    CHECK((where == nullptr || arena.contains(a.bytes().data())));
    const void* const data = a.bytes().data();
    a.as<float>()[999] = 3;
    Buffer b(std::move(a));
    CHECK(b.bytes().data() == data);
    CHECK(ledger.current_bytes(Category::gradients) == 4000);
    Buffer c(8, Category::gradients, ledger, where);
    CHECK(ledger.current_bytes(Category::gradients) == 4008);
    c = std::move(b);
    CHECK(ledger.current_bytes(Category::gradients) == 4000);
    CHECK(c.as<float>()[999] == 3);
    CHECK(kind_of([&] {
            Buffer odd(7, Category::gradients, ledger, where);
            odd.as<float>();
          }) == ErrorKind::bug);
  }
  CHECK(ledger.current_bytes(Category::gradients) == 0);
  CHECK(ledger.peak_bytes(Category::gradients) == 4008);
  CHECK(Buffer(0, Category::gradients, ledger, where).bytes().empty());
  CHECK(Buffer(512, Category::gradients, ledger, where).size_bytes() == 512);
}

TEST_CASE("buffers that do not fit are not booked") {
  MemoryLedger ledger;
  Arena arena(64);
  CHECK(kind_of([&] { Buffer(65, Category::parameters, ledger, &arena); }) == ErrorKind::usage);
  CHECK(ledger.peak_bytes(Category::parameters) == 0);
}

TEST_CASE("large buffers start on a huge page") {
  MemoryLedger ledger;
  Buffer buffer(std::size_t{4} << 20, Category::parameters, ledger);
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % (2 << 20) == 0);
}

TEST_CASE("threads share an arena") {
  Arena arena(1 << 20);
  MemoryLedger ledger;
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 1; t <= 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 500; ++i) {
          Buffer buffer(static_cast<std::size_t>(1 + (i * 37) % 5000), Category::activations, ledger, &arena);
          if (!all_zero(buffer.bytes())) ++wrong;
          std::memset(buffer.bytes().data(), t, buffer.size_bytes());
          for (const std::byte b : buffer.bytes())
            if (b != std::byte(t)) ++wrong;
        }
      });
  }
  CHECK(wrong == 0);
  CHECK(ledger.current_bytes(Category::activations) == 0);
}
