// Frames out of a stream of bytes: plain, whatever comes; encrypted, nothing but what was sent, in its order, however
// the bytes were changed on their way.
#include <vector>

#include <sys/epoll.h>

#include <psring/common/net/tcp/stream.h>
#include <psring/tests/fuzz/frames.h>
#include <psring/tests/fuzz/sockets.h>

using namespace psring;
using namespace psring::net;

namespace {

constexpr std::size_t kMostPayload = std::size_t{64} << 10;

std::span<std::byte> admit(const FrameHeader& header) {
  if (header.payload_bytes > kMostPayload) fail(ErrorKind::protocol, "too large here");
  return {};
}

struct Sent {
  FrameHeader header;
  std::vector<std::byte> payload;
};

/// A sender, a wire that somebody holds, and a receiver.
class Wire {
 public:
  explicit Wire(bool encrypt) {
    auto [a, b] = fuzz::socket_pair(SOCK_STREAM);
    auto [c, d] = fuzz::socket_pair(SOCK_STREAM);
    from_sender_ = std::move(b);
    to_receiver_ = std::move(c);
    sender_.emplace(std::move(a), pool_);
    receiver_.emplace(std::move(d), pool_);
    if (!encrypt) return;
    const Mac there = fuzz::job_key().mac({});
    const Mac back = fuzz::job_key().link_secret({});
    sender_->encrypt(there, back);
    receiver_->encrypt(back, there);
  }

  void send(fuzz::Input& in) {
    Sent& frame = sent_.emplace_back();
    frame.header = fuzz::read_header(in);
    const auto some = in.take(in.byte());
    frame.payload.assign(some.begin(), some.end());
    frame.payload.resize(some.size() * (in.below(2) == 0 ? 1 : 17));
    frame.header.payload_bytes = frame.payload.size();
    sender_->send(frame.header, frame.payload);
    std::array<std::byte, 16384> bytes;
    const ssize_t size = ::recv(from_sender_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size > 0) held_.insert(held_.end(), bytes.begin(), bytes.begin() + size);
  }
  /// Whoever holds the wire adds, drops or changes some of what is on it.
  void tamper(fuzz::Input& in) {
    changed_ = true;
    const std::size_t at = held_.empty() ? 0 : in.number<std::uint16_t>() % held_.size();
    const auto place = held_.begin() + static_cast<std::ptrdiff_t>(at);
    const auto bytes = in.take(in.byte());
    switch (in.below(3)) {
      case 0:
        held_.insert(place, bytes.begin(), bytes.end());
        break;
      case 1:
        held_.erase(place, place + static_cast<std::ptrdiff_t>(std::min(bytes.size(), held_.size() - at)));
        break;
      default:
        for (std::size_t i = 0; i < std::min(bytes.size(), held_.size() - at); ++i) place[i] ^= bytes[i];
    }
  }
  void deliver(std::size_t count) {
    count = std::min(count, held_.size());
    fuzz::write_some(to_receiver_, std::span(held_).first(count));
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
    receiver_->try_anyway();
    while (const std::optional<Message> message = receiver_->receive(admit)) {
      fuzz::require(message->payload.size() == message->header.payload_bytes, "a whole payload");
      if (changed_ && !encrypted()) continue;
      fuzz::require(received_ < sent_.size(), "a frame that was sent");
      const Sent& sent = sent_[received_++];
      fuzz::require(
          encode(sent.header) == encode(message->header) && std::ranges::equal(sent.payload, message->payload),
          "the frame that was sent");
    }
  }
  void end() {
    deliver(held_.size());
    fuzz::require(changed_ || held_.size() > 0 || received_ == sent_.size(), "all that was sent");
  }
  bool encrypted() const { return encrypted_; }
  void set_encrypted(bool value) { encrypted_ = value; }

 private:
  std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();
  Fd from_sender_;
  Fd to_receiver_;
  std::optional<TcpStream> sender_;
  std::optional<TcpStream> receiver_;
  std::vector<std::byte> held_;
  std::vector<Sent> sent_;
  std::size_t received_ = 0;
  bool changed_ = false;
  bool encrypted_ = false;
};

}  // namespace

void psring::fuzz::run(Input in) {
  const bool encrypt = in.below(2) == 1;
  Wire wire(encrypt);
  wire.set_encrypted(encrypt);
  refuses(ErrorKind::protocol, [&] {
    for (int i = 0; i < 64 && !in.empty(); ++i) {
      switch (in.below(3)) {
        case 0:
          wire.send(in);
          break;
        case 1:
          wire.tamper(in);
          break;
        default:
          wire.deliver(in.number<std::uint16_t>());
      }
    }
    wire.end();
  });
}
