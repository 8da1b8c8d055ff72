#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include <psring/common/base/clock.h>

namespace psring::net {

/// Connections that came to nothing because who opened them did not prove the job's key: counted, and told in at most
/// one line a second, however many there are. From any thread.
class Refusals {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `who` begins each line: "server 0".
  Refusals(std::string who, const Clock& clock, Say say);
  /// Tells of those that no line has told of.
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  void add(std::uint64_t count = 1);
  std::uint64_t total() const;

 private:
  void tell(Moment now);

  const std::string who_;
  const Clock& clock_;
  const Say say_;
  mutable std::mutex mutex_;
  std::uint64_t total_ = 0;  ///< guarded by mutex_, as all below
  std::uint64_t told_ = 0;
  Moment next_line_ = Moment::min();
};

/// Where nobody counts.
inline void count_refusal(Refusals* refusals) {
  if (refusals != nullptr) refusals->add();
}

}  // namespace psring::net
