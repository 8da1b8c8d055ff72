#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include <psring/common/base/clock.h>

namespace psring::net {

/// Counts connections that were refused because the client did not prove the job's key. Reports them in at most one
/// line per second. Safe for use from several threads.
class Refusals {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `name` begins each line: "server 0".
  Refusals(std::string name, const Clock& clock, Say say);
  /// Reports the connections that no line has reported yet.
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  void add(std::uint64_t count = 1);
  std::uint64_t total() const;

 private:
  void report(Moment now);

  const std::string name_;
  const Clock& clock_;
  const Say say_;
  mutable std::mutex mutex_;
  std::uint64_t total_ = 0;  ///< guarded by mutex_, like all members below
  std::uint64_t reported_ = 0;
  Moment next_line_ = Moment::min();
};

/// Counts a refusal; `refusals` may be null.
inline void count_refusal(Refusals* refusals) {
  if (refusals != nullptr) refusals->add();
}

}  // namespace psring::net
