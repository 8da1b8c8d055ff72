#pragma once

#include <optional>
#include <string>

#include <psring/view/live/http.h>

namespace psring::view {

/// Decides whether a request may be answered.
class Access {
 public:
  /// Makes a random token of 128 bits.
  Access();
  explicit Access(std::string token) : token_(std::move(token)) {}

  const std::string& token() const { return token_; }
  /// Returns the status with which the request is refused; nothing if it may be answered.
  std::optional<int> refuse(const HttpRequest& request) const;

 private:
  bool has_token(const HttpRequest& request) const;

  std::string token_;
};

/// Is this the Host header of a request to this host by its address, as localhost, or by the host's own name? Another
/// name may be a page's that makes it resolve to this host ("DNS rebinding"). A tunnel may change the port.
bool is_own_host(const std::string& host);

}  // namespace psring::view
