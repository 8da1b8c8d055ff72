#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/view/live/run_files.h>

namespace psring::view {

/// Serves the live view of a run folder over HTTP, as docs/guide/live.md describes.
class Watch {
 public:
  struct Options {
    std::filesystem::path folder;
    std::string listen = "127.0.0.1:0";
    RunFiles::Tokens tokens;
  };
  /// Throws usage if the address has another form, and data if it cannot be listened at. REQUIRES: the clock outlives
  /// the object.
  Watch(Options options, const Clock& clock);
  ~Watch();

  /// The address of the page, with its token.
  std::string url() const;
  /// Serves: to the run's end and until all viewers have its last state, or forever.
  void run(bool until_end);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace psring::view
