#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <psring/ring/shm/message.h>
#include <psring/ring/shm/operation.h>
#include <psring/ring/shm/post.h>
#include <psring/ring/shm/progress.h>

namespace psring::ring {
namespace {

/// Waits until all ranks have finished an operation, so that its post and eager buffer can be used again.
class RoomForPost final : public ShmTask {
 public:
  RoomForPost(ShmProgress& progress, const ShmEndpoint& at, const Announced& said)
      : ShmTask(progress), at_(at), said_(said) {}

  bool advance() override {
    progress().advance();
    return finished();
  }
  bool finished() const override { return slowest() == at_.size(); }
  std::vector<std::size_t> awaited() const override { return {at_.name(slowest())}; }
  Announced said() const override { return said_; }

 private:
  /// The first rank that has not finished the operation; the number of ranks if all have.
  std::size_t slowest() const {
    std::size_t r = 0;
    while (r < at_.size() && at_.control().rank(r).completed.load(std::memory_order_acquire) > said_.number) ++r;
    return r;
  }

  const ShmEndpoint& at_;
  const Announced said_;
};

}  // namespace

void ShmTask::wait() {
  if (!finished()) progress_.wait_for(*this);
}

ShmProgress::ShmProgress(ShmEndpoint& at, GroupOptions options)
    : at_(at), options_(std::move(options)), sent_(at.size(), 0), received_(at.size(), 0) {}

ShmProgress::~ShmProgress() = default;

Work ShmProgress::start_collective(const Request& request) {
  at_.failure().check();
  const Call& said = request.outer != nullptr ? request.outer->call : request.call;
  if (next_ >= completed_ + kShmPosts) make_room(said);
  post(at_, next_, said, request.call, request.data);
  // The rest comes after the post, as other ranks need not wait for it.
  auto operation = std::make_shared<ShmOperation>(*this, at_, next_, request);
  ++next_;
  queue_.push_back(operation);
  return Work(std::move(operation));
}

/// The post and the eager buffer of operation next_ - kShmPosts are used again: all ranks must have finished it.
/// Memory order: a rank releases `completed` after its last look at them.
void ShmProgress::make_room(const Call& said) {
  RoomForPost room(*this, at_, {said, next_ - kShmPosts});
  if (!room.advance()) wait_for(room);
  completed_ = next_;
  for (std::size_t r = 0; r < at_.size(); ++r)
    completed_ = std::min(completed_, at_.control().rank(r).completed.load(std::memory_order_acquire));
}

Work ShmProgress::start_message(const Request& request) {
  at_.failure().check();
  const bool sends = request.call.collective == Collective::send;
  const std::uint64_t number = sends ? sent_[request.peer]++ : received_[request.peer]++;
  auto message = std::make_shared<ShmMessage>(*this, at_, number, request);
  messages_.push_back(message);
  advance();
  return Work(std::move(message));
}

void ShmProgress::advance() {
  while (!queue_.empty() && queue_.front()->step()) queue_.pop_front();
  if (messages_.empty()) return;
  for (const auto& message : messages_) message->step();
  std::erase_if(messages_, [](const auto& message) { return message->finished(); });
}

void ShmProgress::wait_for(const ShmTask& task) {
  at_.failure().rethrow();
  const auto ready = [&] {
    advance();
    return task.finished();
  };
  ShmBells& bells = at_.bells();
  if (bells.spin(ready)) return;
  const Moment since = SystemClock().now();
  for (;;) {
    const std::uint32_t seen = bells.watch();
    bool done = false;
    try {
      done = ready();
    } catch (...) {
      bells.leave();
      throw;
    }
    if (!done) bells.sleep(seen, ShmBells::kSleep);
    bells.leave();
    if (done || ready()) return;
    check_peers(task, since);
  }
}

void ShmProgress::check_peers(const ShmTask& task, Moment since) {
  ShmFailure& failure = at_.failure();
  failure.check();
  const Announced said = task.said();
  const std::string doing = waiting_in(at_.name(at_.rank()), said.call, said.number, task.awaited());
  if (options_.check) {
    try {
      options_.check();
    } catch (const Error& error) {
      failure.end(error.with_context(doing));
    }
  }
  const Nanoseconds waited = SystemClock().now() - since;
  if (options_.op_timeout > Nanoseconds(0) && waited > options_.op_timeout)
    failure.end(Error(ErrorKind::timeout, fmt::format("{}: nothing for {:.1f} s", doing, seconds(waited))));
}

}  // namespace psring::ring
