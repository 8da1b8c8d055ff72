#include <algorithm>
#include <chrono>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/worker/programs/server_access.h>

namespace psring::worker {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kSlice = 20ms;  ///< of waiting, then the waiting thread checks whether the job lives

}  // namespace

PsClient::Options ServerAccess::options(Membership& member, Arena& arena) {
  PsClient::Options options;
  options.mark = [&arena](const void* at) { return arena.mark(at); };
  options.check = [&member] { member.link().check(); };
  options.first_owner = member.rank();
  options.copied_pushes = true;
  if (member.job().op_timeout > 0) options.op_timeout = from_seconds(member.job().op_timeout);
  return options;
}

ServerAccess::ServerAccess(Membership& member, Layout layout, PsClient::Options options)
    : member_(member), client_(member.links().transport(), member.clock(), std::move(layout), std::move(options)) {}

void ServerAccess::latch(const Error& error) {
  error_ = member_.fail(error);
  throw Error(*error_);
}

bool ServerAccess::wait_until(const std::function<bool()>& done, Moment until) {
  const JobOptions& job = member_.job();
  const Moment start = member_.clock().now();
  const Moment limit = job.op_timeout > 0 ? start + from_seconds(job.op_timeout) : kNever;
  while (true) {
    const Moment now = member_.clock().now();
    const bool is_done = locked([&] {
      mutex_.assert_held();
      client_.progress();
      if (done()) return true;
      if (now >= limit)
        fail(ErrorKind::timeout, "waited {:.1f} s (--op-timeout) for the servers", seconds(now - start));
      member_.link().check();
      if (now >= until || entering_.load() > 0) return false;
      return client_.wait_message(std::min(until, now + kSlice)) && done();
    });
    if (is_done) return true;
    if (now >= until) return false;
    if (entering_.load() == 0) continue;
    MutexLock lock(mutex_);
    entered_.wait_for(mutex_, 1ms, [&] { return entering_.load() == 0; });
  }
}

}  // namespace psring::worker
