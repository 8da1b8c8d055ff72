#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace psring::net {

/// A CURVE key pair in ZeroMQ's Z85 text encoding.
struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

using Mac = std::array<std::byte, 32>;

/// The secret that all processes of a job share: 32 random bytes. All other secrets are derived from it (keyed BLAKE2b,
/// with a different context each). A process with the key belongs to the job.
class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;

  static JobKey generate();
  /// Reads a key file that `save` wrote. Throws data, naming the file, if the file is missing or not a key, and
  /// unauthorised if other users can read the file. A file of root's may be readable by this process's group.
  static JobKey load(const std::filesystem::path& file);
  /// Writes 64 hexadecimal digits, readable only by the owner. Throws usage if the file exists.
  void save(const std::filesystem::path& file) const;
  /// The content of a key file: 64 hexadecimal digits and a newline.
  std::string text() const;
  /// Writes the same into an open file; `name` is for errors.
  void write(int fd, const std::string& name) const;

  /// Identifies the frames of this job; reveals nothing about the key.
  std::uint64_t job_id() const;
  /// Returns HMAC-SHA-512-256 of `message`.
  Mac mac(std::span<const std::byte> message) const;
  /// Returns the secret of a link, derived from the handshake's transcript with keyed BLAKE2b.
  Mac link_secret(std::span<const std::byte> transcript) const;
  /// The key pairs of listening and of connecting processes. ZAP's allow-list contains one key.
  CurveKeys server_keys() const;
  CurveKeys client_keys() const;

 private:
  explicit JobKey(const std::array<unsigned char, kBytes>& secret) : secret_(secret) {}
  std::array<unsigned char, kBytes> derive(const char* context) const;
  CurveKeys curve_keys(const char* context) const;

  std::array<unsigned char, kBytes> secret_;
};

/// Compares without revealing the position of the first difference by timing.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace psring::net
