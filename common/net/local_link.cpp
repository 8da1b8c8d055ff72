#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <unistd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/local_link.h>

namespace psring::net {

/// The messages that one end has not taken yet.
struct LocalLink::Inbox {
  void ring() {
    if (!std::exchange(sleeps, false)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell.get(), &one, sizeof one);  // a full counter has already rung
  }

  const Fd bell = make_eventfd();
  std::deque<Message> messages;
  bool closed = false;  ///< the other end is gone
  bool sleeps = false;  ///< the end sleeps or is about to sleep: it needs the bell
};

class LocalLink::End final : public Channel {
 public:
  End(LocalLink& link, Side side) : link_(link), me_(side), other_(side == kClient ? kServer : kClient) {}
  ~End() override {
    const MutexLock lock(link_.mutex_);
    peer_inbox().closed = true;
    peer_inbox().ring();
  }

  bool reaches(Peer peer) const override { return !lost_ && peer == link_.peers_[other_]; }

  void send(Peer /*to*/, const FrameHeader& header, std::span<const std::byte> payload) override {
    Message message{header, payload, {}, nullptr};
    const MutexLock lock(link_.mutex_);
    const bool lent = link_.arena_ != nullptr && !payload.empty() && link_.arena_->contains(payload.data());
    if (!lent && !payload.empty() && payload.size() <= kCopiedBytes) {
      const auto copy = std::make_shared<const std::vector<std::byte>>(payload.begin(), payload.end());
      message.payload = *copy;
      message.holder = copy;
    }
    if (me_ == kClient) message.reply_space = reply_space(header);
    peer_inbox().messages.push_back(std::move(message));
    peer_inbox().ring();
  }

  std::optional<Message> try_receive() override {
    const MutexLock lock(link_.mutex_);
    if (inbox().messages.empty()) {
      if (inbox().closed && !std::exchange(lost_, true))
        fail(ErrorKind::peer_lost, "{} (in this process) has ended", to_string(link_.peers_[other_]));
      return std::nullopt;
    }
    Message message = std::move(inbox().messages.front());
    inbox().messages.pop_front();
    return message;
  }

  bool arm() override {
    const MutexLock lock(link_.mutex_);
    if (!inbox().messages.empty() || (inbox().closed && !lost_)) return false;
    inbox().sleeps = true;
    return true;
  }
  int wait_fd() const override { return bell(); }
  void woken() override {
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t read = ::read(bell(), &rings, sizeof rings);
  }

  std::size_t in_flight_bytes(Peer /*peer*/) const override { return 0; }
  std::size_t framing_bytes(std::size_t /*payload_bytes*/) const override { return 0; }
  bool leaves_process() const override { return false; }
  std::string describe(Peer /*peer*/) const override { return "this process's own memory"; }

 private:
  Inbox& inbox() const PSRING_REQUIRES(link_.mutex_) { return *link_.inboxes_[me_]; }
  Inbox& peer_inbox() const PSRING_REQUIRES(link_.mutex_) { return *link_.inboxes_[other_]; }
  int bell() const { return link_.inboxes_[me_]->bell.get(); }

  std::span<std::byte> reply_space(const FrameHeader& header) const PSRING_REQUIRES(link_.mutex_) {
    if (!asks_for_values(header) || header.dest == 0 || link_.arena_ == nullptr) return {};
    return {link_.arena_->base() + (header.dest - 1), answered_elements(header) * size_bytes(header.dtype)};
  }

  LocalLink& link_;
  const Side me_;
  const Side other_;
  bool lost_ = false;  ///< the other end is gone, and its loss was reported
};

LocalLink::LocalLink(Peer client, Peer server, std::shared_ptr<LinkShaper> card)
    : peers_{client, server}, card_(std::move(card)), inboxes_{std::make_unique<Inbox>(), std::make_unique<Inbox>()} {}

LocalLink::~LocalLink() = default;

std::unique_ptr<Channel> LocalLink::client_end(Arena& arena) {
  const MutexLock lock(mutex_);
  check(std::exchange(arena_, &arena) == nullptr, "{} has its end already", to_string(client()));
  return std::make_unique<End>(*this, kClient);
}

std::unique_ptr<Channel> LocalLink::server_end() { return std::make_unique<End>(*this, kServer); }

}  // namespace psring::net
