#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/epoll.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/crowd.h>
#include <psring/common/net/shm/gate.h>
#include <psring/common/net/shm/unix_handshake.h>

namespace psring::net {

void watch(const Fd& epoll, const Fd& fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0)
    fail(ErrorKind::data, "cannot watch a local socket: {}", std::strerror(errno));
}

UnixGate::UnixGate(Fd listener, Options options)
    : options_(std::move(options)), listener_(std::move(listener)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail(ErrorKind::data, "cannot make an epoll: {}", std::strerror(errno));
  watch(epoll_, listener_, EPOLLIN);
}

void UnixGate::poll(const Admit& admit) {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool knocked = false;
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    knocked = knocked || fd == listener_.get();
    const auto client =
        std::find_if(clients_.begin(), clients_.end(), [&](const Client& c) { return c.socket.get() == fd; });
    if (client == clients_.end()) continue;
    const Next next = advance(*client, admit);
    if (next == Next::wait) continue;
    if (next == Next::refused)
      count_refusal(options_.refusals, client->handshake->wrong_key() ? Refusal::wrong_key : Refusal::unfinished);
    clients_.erase(client);
  }
  const Moment now = SystemClock().now();
  const std::size_t late = std::erase_if(clients_, [&](const Client& client) { return client.deadline <= now; });
  count_refusal(options_.refusals, Refusal::unfinished, late);
  if (knocked) accept();
}

void UnixGate::accept() {
  for (int i = 0; i < kAcceptsAtATime; ++i) {  // the next call accepts further clients
    std::optional<Fd> socket = accept_unix(listener_);
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      turn_one_away();  // frees the descriptor
      socket = accept_unix(listener_);
    }
    if (!socket) return;
    if (clients_.size() >= kMost) turn_one_away();
    watch(epoll_, *socket, EPOLLIN | EPOLLRDHUP);
    const pid_t process = process_behind(*socket);
    auto handshake = std::make_unique<ServerHandshake>(options_.key, options_.self, random_nonce());
    clients_.push_back(
        {std::move(*socket), process, std::move(handshake), SystemClock().now() + options_.handshake_timeout});
  }
}

/// Makes room for a client. Throws data if no client is left that could be turned away: the links need all descriptors.
void UnixGate::turn_one_away() {
  const auto origin = [](const Client& client) { return std::optional(static_cast<std::uint64_t>(client.process)); };
  const auto chosen = most_crowding(clients_, origin);
  if (chosen == clients_.end())
    fail(ErrorKind::data, "no free file descriptor for another client; raise the limit of open files (ulimit -n)");
  clients_.erase(chosen);
  count_refusal(options_.refusals, Refusal::unfinished);
}

/// Advances a handshake by one step. A refused client gets the reason.
UnixGate::Next UnixGate::advance(Client& client, const Admit& admit) {
  try {
    std::optional<Packet> packet = receive_packet(client.socket);
    if (!packet) return Next::wait;
    const auto [header, payload] = parse_frame(*packet);
    const HandshakeFrame answer = client.handshake->on_frame(header, payload);
    if (client.handshake->open()) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
      send_frame(admit(client.handshake->client(), client.socket, std::move(packet->fds)), answer);
      return Next::admitted;
    }
    send_frame(client.socket, answer);
    return client.handshake->refused() ? Next::refused : Next::wait;
  } catch (const Error& error) {
    if (!client.socket) return Next::admitted;  // the loss of its link is reported by its new owner
    if (error.kind() == ErrorKind::peer_lost) return Next::refused;
    try {
      send_frame(client.socket, refusal(options_.self.peer, error));
    } catch (const Error&) {
      // The client has hung up and cannot get the reason.
    }
    return Next::refused;
  }
}

}  // namespace psring::net
