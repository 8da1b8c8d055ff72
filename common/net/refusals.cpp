#include <chrono>
#include <utility>

#include <fmt/core.h>

#include <psring/common/base/system/mutex.h>
#include <psring/common/net/refusals.h>

namespace psring::net {

Refusals::Refusals(std::string name, const Clock& clock, Say say)
    : name_(std::move(name)), clock_(clock), say_(std::move(say)) {}

Refusals::~Refusals() {
  const MutexLock lock(mutex_);
  for (const Refusal why : {Refusal::wrong_key, Refusal::unfinished}) {
    const Count& count = counts_[static_cast<std::size_t>(why)];
    if (count.reported < count.total) report(why, count.next_line);
  }
}

void Refusals::add(Refusal why, std::uint64_t count) {
  const MutexLock lock(mutex_);
  Count& all = counts_[static_cast<std::size_t>(why)];
  all.total += count;
  if (const Moment now = clock_.now(); now >= all.next_line) report(why, now);
}

std::uint64_t Refusals::total() const {
  const MutexLock lock(mutex_);
  return counts_[0].total + counts_[1].total;
}

void Refusals::report(Refusal why, Moment now) {
  Count& count = counts_[static_cast<std::size_t>(why)];
  const std::uint64_t fresh = count.total - count.reported;
  say_(why == Refusal::wrong_key ? fmt::format("{}: refused {} connections that did not prove the job's key, {} in all",
                                               name_, fresh, count.total)
                                 : fmt::format("{}: closed {} connections whose handshake was not finished, {} in all",
                                               name_, fresh, count.total));
  count.reported = count.total;
  count.next_line = now + std::chrono::seconds(1);
}

}  // namespace psring::net
