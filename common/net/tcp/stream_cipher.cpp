#include <sodium.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/stream_cipher.h>

namespace psring::net {
namespace {

static_assert(kSealBytes == crypto_secretstream_xchacha20poly1305_ABYTES);
static_assert(sizeof(SealHead) == crypto_secretstream_xchacha20poly1305_HEADERBYTES);
static_assert(sizeof(Mac) == crypto_secretstream_xchacha20poly1305_KEYBYTES);

unsigned char* raw(std::byte* data) { return reinterpret_cast<unsigned char*>(data); }
const unsigned char* raw(const std::byte* data) { return reinterpret_cast<const unsigned char*>(data); }

}  // namespace

struct Sealer::State {
  crypto_secretstream_xchacha20poly1305_state stream;
};
struct Opener::State {
  crypto_secretstream_xchacha20poly1305_state stream;
};

Sealer::Sealer(const Mac& key) : state_(std::make_unique<State>()) {
  check(sodium_init() >= 0, "libsodium could not be initialised");
  crypto_secretstream_xchacha20poly1305_init_push(&state_->stream, raw(head_.data()), raw(key.data()));
}
Sealer::~Sealer() = default;
Sealer::Sealer(Sealer&&) noexcept = default;
Sealer& Sealer::operator=(Sealer&&) noexcept = default;

void Sealer::seal(std::span<const std::byte> plain, std::span<std::byte> sealed) {
  check(sealed.size() == plain.size() + kSealBytes, "a chunk of {} bytes sealed into {}", plain.size(), sealed.size());
  crypto_secretstream_xchacha20poly1305_push(&state_->stream, raw(sealed.data()), nullptr, raw(plain.data()),
                                             plain.size(), nullptr, 0, 0);
}

Opener::Opener(const Mac& key, const SealHead& head) : state_(std::make_unique<State>()) {
  check(sodium_init() >= 0, "libsodium could not be initialised");
  crypto_secretstream_xchacha20poly1305_init_pull(&state_->stream, raw(head.data()), raw(key.data()));
}
Opener::~Opener() = default;
Opener::Opener(Opener&&) noexcept = default;
Opener& Opener::operator=(Opener&&) noexcept = default;

void Opener::open(std::span<const std::byte> sealed, std::span<std::byte> plain) {
  check(sealed.size() == plain.size() + kSealBytes, "a chunk of {} bytes opened into {}", sealed.size(), plain.size());
  unsigned char tag = 0;
  if (crypto_secretstream_xchacha20poly1305_pull(&state_->stream, raw(plain.data()), nullptr, &tag, raw(sealed.data()),
                                                 sealed.size(), nullptr, 0) != 0)
    fail(ErrorKind::protocol, "an encrypted stream was changed on its way, or is not of this link");
}

}  // namespace psring::net
