#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/tcp/stream.h>

namespace psring::net {
namespace {

/// The number of bytes that a read asks for beyond the next part: one system call then reads the header and the payload
/// of a small frame, or a large payload and the header behind it. Bytes that are read ahead are copied once more.
constexpr std::size_t kReadAhead = std::size_t{8} << 10;
/// The most parts of one system call: many small frames leave together.
constexpr std::size_t kParts = 32;

constexpr std::size_t kSealedHeaderBytes = kHeaderBytes + kSealBytes;

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpStream::TcpStream(Fd socket, std::shared_ptr<BlockPool> pool) : socket_(std::move(socket)), pool_(std::move(pool)) {}

void TcpStream::on_events(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) hung_up_ = true;
  if ((events & EPOLLIN) != 0 || hung_up_) readable_ = !closed_;
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) writable_ = true;
}

void TcpStream::on_connected() {
  hung_up_ = false;
  readable_ = writable_ = true;
}

void TcpStream::encrypt(const Mac& out, const Mac& in) {
  check(!unsent() && !sealer_, "a stream was asked to encrypt while frames wait to be sent");
  sealer_.emplace(out);
  sealed_.assign(sealer_->head().begin(), sealer_->head().end());
  sealed_begin_ = 0;
  opener_key_ = in;
  flush();
}

void TcpStream::send(const FrameHeader& header, std::span<const std::byte> payload) {
  if (broken()) return;
  const bool first = !unsent();
  out_.push_back({encode(header), payload, nullptr});
  unsent_bytes_ += out_.back().bytes();
  if (first) flush();
  if (out_.empty() || payload.empty() || payload.size() > kCopiedBytes) return;
  Outgoing& frame = out_.back();
  frame.copy.reset(new std::byte[payload.size()]);
  std::memcpy(frame.copy.get(), payload.data(), payload.size());
  frame.payload = {frame.copy.get(), payload.size()};
}

bool TcpStream::flush() {
  bool some = false;
  while (writable_ && unsent()) {
    const std::ptrdiff_t written = sealer_ ? write_sealed() : write_frames();
    some = some || written > 0;
    if (written >= 0) continue;
    if (would_wait(errno)) {
      writable_ = false;
    } else if (errno != EINTR) {
      break_off();
    }
  }
  return some;
}

std::ptrdiff_t TcpStream::write_frames() {
  std::array<iovec, kParts> parts;
  std::size_t count = 0;
  std::size_t total = 0;
  for (const Outgoing& frame : out_) {
    if (count + 2 > parts.size()) break;
    const std::size_t header = std::min(frame.done, kHeaderBytes);
    if (header < kHeaderBytes)
      parts[count++] = {const_cast<std::byte*>(frame.header.data()) + header, kHeaderBytes - header};
    if (const auto rest = frame.payload.subspan(frame.done - header); !rest.empty())
      parts[count++] = {const_cast<std::byte*>(rest.data()), rest.size()};
    total += frame.bytes() - frame.done;
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written <= 0) return written;
  left(static_cast<std::size_t>(written));
  // The kernel took only a part, so its buffer is full, and an event will tell when there is room.
  if (static_cast<std::size_t>(written) < total) writable_ = false;
  return written;
}

/// Notes that bytes have left. A frame leaves the queue with its last byte.
void TcpStream::left(std::size_t bytes) {
  while (bytes > 0) {
    Outgoing& frame = out_.front();
    const std::size_t step = std::min(bytes, frame.bytes() - frame.done);
    unsent_bytes_ -= step;
    frame.done += step;
    bytes -= step;
    if (frame.done == frame.bytes()) out_.pop_front();
  }
}

std::ptrdiff_t TcpStream::write_sealed() {
  if (sealed_begin_ == sealed_.size()) seal_next();
  const std::span<const std::byte> rest = std::span(sealed_).subspan(sealed_begin_);
  const ssize_t written = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written <= 0) return written;
  sealed_begin_ += static_cast<std::size_t>(written);
  if (static_cast<std::size_t>(written) < rest.size()) writable_ = false;
  return written;
}

/// Seals the next chunk of the first frame, and its header in front of the first one.
void TcpStream::seal_next() {
  const Outgoing& frame = out_.front();
  const std::size_t header = frame.done == 0 ? kSealedHeaderBytes : 0;
  const std::size_t at = frame.done == 0 ? 0 : frame.done - kHeaderBytes;
  const auto chunk = frame.payload.subspan(at, std::min(kChunkBytes, frame.payload.size() - at));
  sealed_.resize(header + (chunk.empty() ? 0 : chunk.size() + kSealBytes));
  sealed_begin_ = 0;
  const std::span<std::byte> sealed = sealed_;
  if (header > 0) sealer_->seal(frame.header, sealed.first(header));
  if (!chunk.empty()) sealer_->seal(chunk, sealed.subspan(header));
  left((header > 0 ? kHeaderBytes : 0) + chunk.size());
}

void TcpStream::break_off() {
  broken_ = true;
  out_.clear();
  sealed_.clear();
  sealed_begin_ = 0;
  unsent_bytes_ = 0;
}

void TcpStream::give_up(const std::string& why) {
  end_ = why;
  closed_ = true;
  readable_ = false;
  break_off();
}

void TcpStream::shut_down() { ::shutdown(socket_.get(), SHUT_WR); }

std::optional<Message> TcpStream::receive(const Place& place) {
  for (;;) {
    if (advance(place)) return finish();
    if (!readable_) return std::nullopt;
    fill();
  }
}

/// Consumes bytes that were read. Returns true once a frame is complete.
bool TcpStream::advance(const Place& place) {
  for (;;) {
    const std::size_t bytes = wanted();
    if (bytes > 0 && buffered() < bytes) return false;
    if (opener_key_) {
      SealHead head;
      std::memcpy(head.data(), take(bytes).data(), bytes);
      opener_.emplace(*std::exchange(opener_key_, std::nullopt), head);
    } else if (!header_) {
      std::array<std::byte, kHeaderBytes> header;
      if (opener_) opener_->open(take(bytes), header);
      begin(decode(opener_ ? std::span<const std::byte>(header) : take(bytes)), place);
    } else if (received_ == payload_.size()) {
      return true;
    } else if (opener_) {
      opener_->open(take(bytes), payload_.subspan(received_, bytes - kSealBytes));
      received_ += bytes - kSealBytes;
    } else {
      const auto part = take(std::min(buffered(), payload_.size() - received_));
      if (part.empty()) return false;
      std::memcpy(payload_.data() + received_, part.data(), part.size());
      received_ += part.size();
    }
  }
}

/// The number of bytes that `advance` needs in the buffer at once; 0: it takes any number.
std::size_t TcpStream::wanted() const {
  if (opener_key_) return sizeof(SealHead);
  if (!header_) return opener_ ? kSealedHeaderBytes : kHeaderBytes;
  if (!opener_ || received_ == payload_.size()) return 0;
  return std::min(kChunkBytes, payload_.size() - received_) + kSealBytes;
}

std::span<const std::byte> TcpStream::take(std::size_t bytes) {
  const auto taken = std::span<const std::byte>(buffer_).subspan(buffer_begin_, bytes);
  buffer_begin_ += bytes;
  return taken;
}

void TcpStream::begin(const FrameHeader& header, const Place& place) {
  payload_ = place(header);
  if (payload_.empty() && header.payload_bytes > 0) {
    block_ = pool_->take(header.payload_bytes);
    payload_ = {block_.get(), header.payload_bytes};
  }
  check(payload_.size() == header.payload_bytes, "a place of {} bytes for a payload of {}", payload_.size(),
        header.payload_bytes);
  received_ = 0;
  header_ = header;
}

/// Reads with one system call. Bytes of a plain payload go straight to its place, all others into the buffer.
void TcpStream::fill() {
  const std::span<std::byte> rest = header_ && !opener_ ? payload_.subspan(received_) : std::span<std::byte>();
  const std::size_t goal = wanted() + kReadAhead;
  if (buffer_begin_ == buffer_end_) buffer_begin_ = buffer_end_ = 0;
  if (buffer_begin_ + goal > buffer_.size()) {
    if (buffered() > 0) std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffered());
    buffer_end_ -= std::exchange(buffer_begin_, 0);
    if (buffer_.size() < goal) buffer_.resize(goal);
  }
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  if (!rest.empty()) parts[count++] = {rest.data(), rest.size()};
  // Reading more than the goal would move the bytes ahead of a large chunk in memory.
  const std::size_t room = goal > buffered() ? goal - buffered() : 0;
  parts[count++] = {buffer_.data() + buffer_end_, room};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t read = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  if (read < 0 && errno == EINTR) return;
  if (read < 0 && would_wait(errno)) {
    readable_ = false;
  } else if (read <= 0) {
    give_up(read == 0 ? "it closed the connection" : std::strerror(errno));
  } else {
    const auto bytes = static_cast<std::size_t>(read);
    received_ += std::min(bytes, rest.size());
    buffer_end_ += bytes - std::min(bytes, rest.size());
    // The kernel had fewer bytes than asked for, so it has no more, and an event will report new bytes.
    if (bytes < rest.size() + room) readable_ = hung_up_;
  }
}

Message TcpStream::finish() {
  Message message;
  message.header = *std::exchange(header_, std::nullopt);
  message.payload = std::exchange(payload_, {});
  message.holder = std::exchange(block_, nullptr);
  return message;
}

}  // namespace psring::net
