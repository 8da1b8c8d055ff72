#include <chrono>
#include <utility>

#include <fmt/core.h>

#include <psring/common/net/refusals.h>

namespace psring::net {

Refusals::Refusals(std::string name, const Clock& clock, Say say)
    : name_(std::move(name)), clock_(clock), say_(std::move(say)) {}

Refusals::~Refusals() {
  const std::scoped_lock lock(mutex_);
  if (reported_ < total_) report(next_line_);
}

void Refusals::add(std::uint64_t count) {
  const std::scoped_lock lock(mutex_);
  total_ += count;
  if (const Moment now = clock_.now(); now >= next_line_) report(now);
}

std::uint64_t Refusals::total() const {
  const std::scoped_lock lock(mutex_);
  return total_;
}

void Refusals::report(Moment now) {
  say_(fmt::format("{}: refused {} connections that did not prove the job's key, {} in all", name_, total_ - reported_,
                   total_));
  reported_ = total_;
  next_line_ = now + std::chrono::seconds(1);
}

}  // namespace psring::net
