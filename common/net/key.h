#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace psring::net {

/// A key pair of CURVE, in ZeroMQ's Z85 text.
struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

using Mac = std::array<std::byte, 32>;

/// The secret that all processes of a job share: 32 random bytes, from which everything else is derived
/// (BLAKE2b, keyed, one context each). Whoever holds it belongs to the job.
class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;

  static JobKey generate();
  /// Reads what `save` wrote. Throws data, naming the file, where it is missing or not a key, and
  /// unauthorised where others than its owner may read it.
  static JobKey load(const std::filesystem::path& file);
  /// Writes 64 hexadecimal digits, readable by the owner only. Throws usage where the file exists.
  void save(const std::filesystem::path& file) const;
  /// The same into an open file; `name` is for the error.
  void write(int fd, const std::string& name) const;

  /// Marks the frames of this job; says nothing about the key.
  std::uint64_t job_id() const;
  /// HMAC-SHA-512-256 of `message`.
  Mac mac(std::span<const std::byte> message) const;
  /// A secret of one link, from what was said when it opened: keyed BLAKE2b.
  Mac link_secret(std::span<const std::byte> transcript) const;
  /// The key pair of whoever listens, and that of whoever connects: the allow-list of ZAP has one entry.
  CurveKeys server_keys() const;
  CurveKeys client_keys() const;

 private:
  explicit JobKey(const std::array<unsigned char, kBytes>& secret) : secret_(secret) {}
  std::array<unsigned char, kBytes> derive(const char* context) const;
  CurveKeys curve_keys(const char* context) const;

  std::array<unsigned char, kBytes> secret_;
};

/// Compares without leaking where the first difference is.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace psring::net
