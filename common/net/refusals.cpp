#include <chrono>
#include <utility>

#include <fmt/core.h>

#include <psring/common/net/refusals.h>

namespace psring::net {

Refusals::Refusals(std::string who, const Clock& clock, Say say)
    : who_(std::move(who)), clock_(clock), say_(std::move(say)) {}

Refusals::~Refusals() {
  const std::scoped_lock lock(mutex_);
  if (told_ < total_) tell(next_line_);
}

void Refusals::add(std::uint64_t count) {
  const std::scoped_lock lock(mutex_);
  total_ += count;
  if (const Moment now = clock_.now(); now >= next_line_) tell(now);
}

std::uint64_t Refusals::total() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

void Refusals::tell(Moment now) {
  say_(fmt::format("{}: refused {} connections that did not prove the job's key, {} in all", who_, total_ - told_,
                   total_));
  told_ = total_;
  next_line_ = now + std::chrono::seconds(1);
}

}  // namespace psring::net
