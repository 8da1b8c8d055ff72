#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/key.h>

namespace psring::net {
namespace {

void ready() { check(sodium_init() >= 0, "libsodium could not be initialised"); }

/// A file that root owns may be readable by a group, to which this process belongs by root's will: so a Secret of
/// Kubernetes reaches a process without root's rights. libpq has the same rule for private keys.
bool others_can_read(const struct stat& status) {
  const bool is_roots = status.st_uid == 0 && ::geteuid() != 0;
  return (status.st_mode & (is_roots ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO)) != 0;
}

std::string z85(const unsigned char* bytes, std::size_t size) {
  std::string text(size / 4 * 5 + 1, '\0');
  zmq_z85_encode(text.data(), bytes, size);
  text.pop_back();
  return text;
}

/// Throws data or unauthorised, naming the file.
std::array<unsigned char, JobKey::kBytes> read_secret(const std::string& file) {
  constexpr std::uint64_t kMostFileBytes = 4096;
  const Fd fd = open_regular(file);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail(ErrorKind::data, "{}: {}", file, std::strerror(errno));
  if (others_can_read(status))
    fail(ErrorKind::unauthorised,
         "{}: other users can read the file; run chmod 600 on it, or make a new key with psring keygen", file);
  const std::string hex = plain_text(read_whole(fd, file, kMostFileBytes), file);
  std::array<unsigned char, JobKey::kBytes> secret;
  std::size_t size = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(secret.data(), secret.size(), hex.data(), hex.size(), "\n", &size, &end) != 0 ||
      size != secret.size() || end != hex.data() + hex.size())
    fail(ErrorKind::data, "{}: not a key: expected {} hexadecimal digits, as psring keygen writes them", file,
         2 * secret.size());
  return secret;
}

}  // namespace

JobKey JobKey::generate() {
  ready();
  std::array<unsigned char, kBytes> secret;
  randombytes_buf(secret.data(), secret.size());
  return JobKey(secret);
}

JobKey JobKey::load(const std::filesystem::path& file) {
  ready();
  try {
    return JobKey(read_secret(file));
  } catch (const Error& error) {
    fail(error.kind(), "--key {}", error.what());
  }
}

void JobKey::save(const std::filesystem::path& file) const {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) {
    const bool exists = errno == EEXIST;
    fail(exists ? ErrorKind::usage : ErrorKind::data, "{}: {}", file.string(),
         exists ? "exists already; a key is never overwritten" : std::strerror(errno));
  }
  const Fd owned(fd);
  write(fd, file.string());
}

std::string JobKey::text() const {
  std::string hex(2 * kBytes + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), secret_.data(), secret_.size());
  hex.back() = '\n';
  return hex;
}

void JobKey::write(int fd, const std::string& name) const {
  const std::string hex = text();
  if (::write(fd, hex.data(), hex.size()) != static_cast<ssize_t>(hex.size()))
    fail(ErrorKind::data, "{}: cannot write: {}", name, std::strerror(errno));
}

std::uint64_t JobKey::job_id() const {
  std::uint64_t id = 0;
  std::memcpy(&id, derive("job id").data(), sizeof id);
  return id;
}

Mac JobKey::mac(std::span<const std::byte> message) const {
  Mac mac;
  crypto_auth(reinterpret_cast<unsigned char*>(mac.data()), reinterpret_cast<const unsigned char*>(message.data()),
              message.size(), derive("data links").data());
  static_assert(crypto_auth_BYTES == sizeof mac && crypto_auth_KEYBYTES == kBytes);
  return mac;
}

Mac JobKey::link_secret(std::span<const std::byte> transcript) const {
  Mac secret;
  const auto key = derive("link secrets");
  crypto_generichash(reinterpret_cast<unsigned char*>(secret.data()), secret.size(),
                     reinterpret_cast<const unsigned char*>(transcript.data()), transcript.size(), key.data(),
                     key.size());
  return secret;
}

CurveKeys JobKey::server_keys() const { return curve_keys("curve server"); }
CurveKeys JobKey::client_keys() const { return curve_keys("curve client"); }

std::array<unsigned char, JobKey::kBytes> JobKey::derive(const char* context) const {
  std::array<unsigned char, kBytes> derived;
  crypto_generichash(derived.data(), derived.size(), reinterpret_cast<const unsigned char*>(context),
                     std::strlen(context), secret_.data(), secret_.size());
  return derived;
}

CurveKeys JobKey::curve_keys(const char* context) const {
  const auto secret = derive(context);
  std::array<unsigned char, crypto_scalarmult_BYTES> point;
  crypto_scalarmult_base(point.data(), secret.data());
  return {z85(point.data(), point.size()), z85(secret.data(), secret.size())};
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace psring::net
