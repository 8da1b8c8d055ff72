#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/mutex.h>

namespace psring::net {

/// Why a listener has not let a client in.
enum class Refusal : std::uint8_t {
  wrong_key,   ///< the client's proof of the job's key was wrong
  unfinished,  ///< the handshake did not come to a proof: silence, garbage, a client that left, or too many at a time
};

/// Counts connections that were refused. Reports them in at most one line per second and reason. Safe for use from
/// several threads.
class Refusals {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `name` begins each line: "server 0".
  Refusals(std::string name, const Clock& clock, Say say);
  /// Reports the connections that no line has reported yet.
  ~Refusals();
  Refusals(const Refusals&) = delete;
  Refusals& operator=(const Refusals&) = delete;

  void add(Refusal why, std::uint64_t count = 1);
  /// All refusals.
  std::uint64_t total() const;

 private:
  struct Count {
    std::uint64_t total = 0;
    std::uint64_t reported = 0;
    Moment next_line = Moment::min();
  };
  void report(Refusal why, Moment now) PSRING_REQUIRES(mutex_);

  const std::string name_;
  const Clock& clock_;
  const Say say_;
  mutable Mutex mutex_;
  std::array<Count, 2> counts_ PSRING_GUARDED_BY(mutex_);  ///< by reason
};

/// Counts refusals; `refusals` may be null.
inline void count_refusal(Refusals* refusals, Refusal why, std::uint64_t count = 1) {
  if (refusals != nullptr && count > 0) refusals->add(why, count);
}

}  // namespace psring::net
