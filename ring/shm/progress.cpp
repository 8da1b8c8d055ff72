#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <psring/ring/shm/operation.h>
#include <psring/ring/shm/post.h>
#include <psring/ring/shm/progress.h>

namespace psring::ring {

/// A message to or from one rank, through the mailbox of that pair and direction.
class ShmMessage final : public ShmTask {
 public:
  /// `number`: among the messages of this pair and direction.
  ShmMessage(ShmProgress& progress, ShmEndpoint& at, std::uint64_t number, const Request& request);
  ~ShmMessage() override;

  bool advance() override { return step(); }
  bool finished() const override { return finished_; }
  std::vector<std::size_t> awaited() const override { return {at_.name(peer_)}; }
  Announced said() const override { return {call_, number_}; }
  /// Goes as far as possible without waiting; true once finished.
  bool step();

 private:
  bool step_send();
  void post(ShmMailbox& box);
  bool step_recv();
  std::size_t bytes() const { return call_.count * call_.type.bytes(); }
  bool is_eager() const { return bytes() <= kShmEagerBytes; }

  ShmEndpoint& at_;
  const std::uint64_t number_;
  const Call call_;
  const Vector data_;
  const std::size_t peer_;
  bool posted_ = false;
  bool finished_ = false;
  std::span<std::byte> copy_;  ///< in the arena, of a vector that lies elsewhere
};

ShmMessage::ShmMessage(ShmProgress& progress, ShmEndpoint& at, std::uint64_t number, const Request& request)
    : ShmTask(progress), at_(at), number_(number), call_(request.call), data_(request.data), peer_(request.peer) {}

ShmMessage::~ShmMessage() {
  if (!copy_.empty()) at_.arena().free(copy_);
}

bool ShmMessage::step() {
  return finished_ = finished_ || (call_.collective == Collective::send ? step_send() : step_recv());
}

/// A small message is complete once it lies in the mailbox; a large one once the receiver has read it.
/// Memory order: the sender releases the number after post and payload; the receiver, which acquires it, releases
/// `taken` after it has read both, so that the sender may write them again.
bool ShmMessage::step_send() {
  ShmMailbox& box = at_.control().mailbox(at_.rank(), peer_);
  if (!posted_) {
    if (box.taken.load(std::memory_order_acquire) != number_) return false;  // the previous message is still there
    post(box);
  }
  return is_eager() || box.taken.load(std::memory_order_acquire) > number_;
}

void ShmMessage::post(ShmMailbox& box) {
  box.post.call = call_;
  if (is_eager()) {
    if (bytes() > 0) std::memcpy(at_.control().mailbox_buffer(at_.rank(), peer_), data_.data, bytes());
  } else {
    const std::byte* data = data_.data;
    if (at_.arena().mark(data) == 0) {
      copy_ = at_.arena().allocate(bytes());
      std::memcpy(copy_.data(), data, bytes());
      data = copy_.data();
    }
    box.post.offset = at_.arena().mark(data) - 1;
  }
  box.post.number.store(number_ + 1, std::memory_order_release);
  at_.bells().ring();
  posted_ = true;
}

bool ShmMessage::step_recv() {
  ShmMailbox& box = at_.control().mailbox(peer_, at_.rank());
  if (box.post.number.load(std::memory_order_acquire) != number_ + 1) return false;
  Call ours = call_;
  ours.collective = Collective::send;
  ours.root = box.post.call.root;
  at_.check_call(peer_, box.post.call, {ours, number_});
  if (is_eager()) {
    if (bytes() > 0) std::memcpy(data_.data, at_.control().mailbox_buffer(peer_, at_.rank()), bytes());
  } else {
    check(box.post.offset + bytes() <= at_.capacity(peer_), "rank {} names memory it does not have", peer_);
    std::memcpy(data_.data, at_.base(peer_) + box.post.offset, bytes());
  }
  at_.traffic().add_read(at_.rank(), peer_, static_cast<std::size_t>(Collective::send), bytes());
  box.taken.store(number_ + 1, std::memory_order_release);
  at_.bells().ring();
  return true;
}

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
