#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <psring/bench/peers/rank_link.h>
#include <psring/common/base/processor/hints.h>
#include <psring/common/net/unix_socket.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};  // until all other ranks have connected
constexpr int kSpins = 200;

/// Ends the process once the benchmark hangs up: a wait inside another library cannot be interrupted.
void end_with(int bench, int stop) {
  pollfd watched[] = {{bench, POLLRDHUP, 0}, {stop, POLLIN, 0}};
  for (;;) {
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (watched[1].revents != 0) return;
    if (watched[0].revents != 0) std::_Exit(exit_status(ErrorKind::peer_lost));
  }
}

}  // namespace

/// Memory order: each arrival releases what its rank wrote and acquires the arrivals before; the last one releases the
/// phase, which all others acquire. The count is reset before, so that nobody sees it in the next phase.
void SharedArea::barrier() {
  Header& h = header();
  const std::uint32_t phase = h.phase.load(std::memory_order_acquire);
  if (h.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    h.arrived.store(0, std::memory_order_relaxed);
    h.phase.store(phase + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; h.phase.load(std::memory_order_acquire) == phase; ++spins) {
    if (spins < kSpins)
      spin_pause();
    else
      ::sched_yield();
  }
}

std::string RankMessage::text(std::size_t from) const {
  const std::size_t begin = std::min(from, bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()) + begin, bytes.size() - begin};
}

void RankMessage::copy_to(void* record, std::size_t size) const {
  if (bytes.size() < size) psring::fail(ErrorKind::protocol, "a message of {} bytes, expected {}", bytes.size(), size);
  std::memcpy(record, bytes.data(), size);
}

void send_message(const Fd& socket, MessageKind kind, std::span<const std::byte> bytes, std::span<const int> files) {
  std::vector<std::byte> packet{static_cast<std::byte>(kind)};
  packet.insert(packet.end(), bytes.begin(), bytes.end());
  net::send_packet(socket, packet, files);
}

void send_text(const Fd& socket, MessageKind kind, std::span<const std::byte> head, const std::string& text) {
  std::vector<std::byte> bytes(head.begin(), head.end());
  const auto letters = std::as_bytes(std::span(text));
  const std::size_t fit = std::min(letters.size(), net::kMaxPacketBytes - 1 - bytes.size());
  bytes.insert(bytes.end(), letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(fit));
  send_message(socket, kind, bytes);
}

std::optional<RankMessage> receive_message(const Fd& socket) {
  std::optional<net::Packet> packet = net::receive_packet(socket);
  if (!packet) return std::nullopt;
  return RankMessage{static_cast<MessageKind>(packet->bytes.front()),
                     {packet->bytes.begin() + 1, packet->bytes.end()},
                     std::move(packet->fds)};
}

RankLink::RankLink(const std::string& control, std::size_t rank) : rank_(rank) {
  socket_ = net::connect_unix(control, SystemClock().now() + kPatience);
  stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_) psring::fail(ErrorKind::data, "eventfd: {}", std::strerror(errno));
  watch_ = std::jthread([bench = socket_.get(), stop = stop_.get()] { end_with(bench, stop); });
  send_message(socket_, MessageKind::hello, record_bytes(static_cast<std::uint32_t>(rank)));
  const RankMessage welcome = wait_for(MessageKind::welcome);
  ranks_ = welcome.as<std::uint32_t>();
  if (welcome.files.size() != 1) psring::fail(ErrorKind::protocol, "the benchmark shares no memory");
  area_.emplace(welcome.files.front(), ranks_);
}

RankLink::~RankLink() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

RankMessage RankLink::wait_for(MessageKind kind) {
  const Moment deadline = SystemClock().now() + kPatience;
  for (;;) {
    if (!net::wait_for(socket_, POLLIN, deadline))
      psring::fail(ErrorKind::timeout, "the other ranks did not connect in time");
    std::optional<RankMessage> message = receive_message(socket_);
    if (!message) continue;
    if (message->kind != kind) psring::fail(ErrorKind::protocol, "the benchmark sent an unexpected message");
    return std::move(*message);
  }
}

std::vector<std::vector<std::byte>> RankLink::exchange(std::span<const std::byte> bytes) {
  send_message(socket_, MessageKind::share, bytes);
  std::vector<std::vector<std::byte>> all;
  while (all.size() < ranks_) all.push_back(wait_for(MessageKind::share).bytes);
  return all;
}

std::optional<Task> RankLink::next_task() {
  for (;;) {
    net::wait_for(socket_, POLLIN, kNever);
    const std::optional<RankMessage> message = receive_message(socket_);
    if (!message) continue;
    if (message->kind == MessageKind::end) return std::nullopt;
    return message->as<Task>();
  }
}

void RankLink::answer_ways(const std::vector<std::string>& ways) {
  std::string text;
  for (const std::string& way : ways) text += way + "\n";
  send_text(socket_, MessageKind::ways, {}, text);
}

void RankLink::fail(const Error& error) {
  try {
    send_text(socket_, MessageKind::failed, record_bytes(error.kind()), error.what());
  } catch (const Error&) {  // the benchmark is gone
  }
}

}  // namespace psring::bench
