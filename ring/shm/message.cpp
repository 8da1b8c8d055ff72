#include <cstring>

#include <psring/ring/shm/message.h>

namespace psring::ring {

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

}  // namespace psring::ring
