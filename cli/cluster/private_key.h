#pragma once

#include <filesystem>

#include <psring/common/base/system/fd.h>
#include <psring/common/net/key.h>

namespace psring::cli {

/// A job's key in memory that only processes that inherit it can open. Nothing of the key remains, however the job
/// ends.
class PrivateKey {
 public:
  /// `text`: the content of a key file; a mistake in it shows when the key is loaded.
  explicit PrivateKey(const std::string& text = net::JobKey::generate().text());
  int fd() const { return fd_.get(); }
  /// The key's path for processes that inherit the descriptor.
  std::filesystem::path file() const;

 private:
  const Fd fd_;
};

}  // namespace psring::cli
