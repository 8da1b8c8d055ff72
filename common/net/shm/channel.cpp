#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/net/crowd.h>
#include <psring/common/net/shm/channel.h>
#include <psring/common/net/shm/link.h>
#include <psring/common/net/shm/unix_handshake.h>

namespace psring::net {
namespace {

constexpr std::size_t kMaxPending = 1024;   ///< limit of clients that have not proved the key yet; see most_crowding
constexpr int kAcceptsAtATime = 64;         ///< bounds one call, so that many clients do not stall the open links
constexpr std::size_t kCallsPerLook = 128;  ///< try_receive checks the sockets once in this many calls while frames
                                            ///< flow

class ShmChannel final : public Channel {
 public:
  explicit ShmChannel(Fd listener, const ShmOptions& options)
      : options_(options), listener_(std::move(listener)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) fail(ErrorKind::data, "cannot make an epoll: {}", std::strerror(errno));
    if (listener_) watch(listener_, EPOLLIN);
  }

  /// Adds a link whose peer has proved the key.
  void open(Fd socket, std::unique_ptr<ShmLink> link) {
    watch(socket, EPOLLIN | EPOLLRDHUP);
    // Edge-triggered: the bell need not be read before it can ring again.
    watch(link->bell(), EPOLLIN | EPOLLET);
    links_.push_back({std::move(socket), std::move(link), false});
  }

  bool reaches(Peer peer) const override { return find(peer) != nullptr; }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override;
  std::optional<Message> try_receive() override;
  bool arm() override;
  void woken() override { woken_ = true; }
  void become(Identity self) override { options_.self = self; }
  int wait_fd() const override { return epoll_.get(); }
  std::size_t in_flight_bytes(Peer peer) const override {
    const Link* link = find(peer);
    return link == nullptr ? 0 : link->shm->in_flight_bytes();
  }
  std::size_t framing_bytes(std::size_t) const override { return kHeaderBytes; }
  std::string describe(Peer) const override { return "shared memory"; }

 private:
  struct Link {
    Fd socket;
    std::unique_ptr<ShmLink> shm;
    bool closed;  ///< by the peer; frames that it sent before may still be there
  };
  struct Pending {
    Fd socket;
    pid_t process;  ///< that opened the connection; 0: unknown
    std::unique_ptr<ServerHandshake> handshake;
    Moment deadline;
    bool admitted = false;  ///< the link is open, and no longer pending
  };

  void watch(const Fd& fd, std::uint32_t events);
  void poll_sockets();
  void accept_clients();
  void turn_one_away();
  bool advance(Pending& pending);
  void admit(Pending& pending, std::vector<Fd> files);
  [[noreturn]] void drop(std::size_t index, const Error& error);

  const Link* find(Peer peer) const {
    const auto at = std::find_if(links_.begin(), links_.end(), [&](const Link& l) { return l.shm->peer() == peer; });
    return at == links_.end() ? nullptr : &*at;
  }
  Error lost(Peer peer) const {
    return Error(ErrorKind::peer_lost,
                 fmt::format("{}: the peer closed its end of the shared memory", to_string(peer)));
  }

  ShmOptions options_;
  const Fd listener_;  ///< empty on the connecting side
  const Fd epoll_;
  std::vector<Link> links_;
  std::vector<Pending> pending_;
  std::deque<Error> lost_;  ///< peers that were replaced before their loss was reported
  std::size_t next_ = 0;    ///< the link to try first
  std::size_t calls_ = 0;
  bool woken_ = false;
};

void ShmChannel::watch(const Fd& fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0)
    fail(ErrorKind::data, "cannot watch a local socket: {}", std::strerror(errno));
}

void ShmChannel::send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) {
  const Link* link = find(to);
  if (link == nullptr) throw lost(to);
  try {
    link->shm->send(header, payload);
  } catch (const Error& error) {
    drop(static_cast<std::size_t>(link - links_.data()), error);
  }
}

std::optional<Message> ShmChannel::try_receive() {
  if (std::exchange(woken_, false) || ++calls_ % kCallsPerLook == 0) poll_sockets();
  if (!lost_.empty()) {
    const Error error = lost_.front();
    lost_.pop_front();
    throw error;
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const std::size_t at = (next_ + i) % links_.size();
    try {
      if (std::optional<Message> message = links_[at].shm->try_receive()) {
        next_ = at + 1;
        return message;
      }
    } catch (const Error& error) {
      drop(at, error);
    }
    if (links_[at].closed) drop(at, Error(ErrorKind::peer_lost, "the peer closed its end of the shared memory"));
  }
  return std::nullopt;
}

bool ShmChannel::arm() {
  if (!lost_.empty()) return false;
  for (const Link& link : links_)
    if (link.closed || !link.shm->arm()) return false;
  return true;
}

/// Removes a link, and throws `error` with the peer's name.
void ShmChannel::drop(std::size_t index, const Error& error) {
  const std::string name = fmt::format("{} (process {} of this host)", to_string(links_[index].shm->peer()),
                                       process_behind(links_[index].socket));
  // Messages may keep the bell's file open, so the epoll must be told to forget it.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, links_[index].shm->bell().get(), nullptr);
  links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
  throw error.with_context(name);
}

/// Handles all events of the sockets.
void ShmChannel::poll_sockets() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  bool has_client = false;
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    has_client = has_client || fd == listener_.get();
    // After the handshake, the only event of a socket is its end.
    for (Link& link : links_) link.closed = link.closed || link.socket.get() == fd;
    const auto at =
        std::find_if(pending_.begin(), pending_.end(), [&](const Pending& p) { return p.socket.get() == fd; });
    if (at == pending_.end() || advance(*at)) continue;
    if (!at->admitted)
      count_refusal(options_.refusals, at->handshake->wrong_key() ? Refusal::wrong_key : Refusal::unfinished);
    pending_.erase(at);
  }
  const Moment now = SystemClock().now();
  const std::size_t late = std::erase_if(pending_, [&](const Pending& p) { return p.deadline <= now; });
  count_refusal(options_.refusals, Refusal::unfinished, late);
  if (has_client) accept_clients();
}

void ShmChannel::accept_clients() {
  for (int i = 0; i < kAcceptsAtATime; ++i) {  // the next call accepts further clients
    std::optional<Fd> socket = accept_unix(listener_);
    if (!socket && (errno == EMFILE || errno == ENFILE)) {
      turn_one_away();  // frees the descriptor
      socket = accept_unix(listener_);
    }
    if (!socket) return;
    if (pending_.size() >= kMaxPending) turn_one_away();
    watch(*socket, EPOLLIN | EPOLLRDHUP);
    const pid_t process = process_behind(*socket);
    auto handshake = std::make_unique<ServerHandshake>(options_.key, options_.self, random_nonce());
    pending_.push_back(
        {std::move(*socket), process, std::move(handshake), SystemClock().now() + options_.handshake_timeout});
  }
}

/// Makes room for a client. Throws data if no client is left that could be turned away: the links need all descriptors.
void ShmChannel::turn_one_away() {
  const auto origin = [](const Pending& pending) { return std::optional(static_cast<std::uint64_t>(pending.process)); };
  const auto chosen = most_crowding(pending_, origin);
  if (chosen == pending_.end())
    fail(ErrorKind::data, "no free file descriptor for another client; raise the limit of open files (ulimit -n)");
  pending_.erase(chosen);
  count_refusal(options_.refusals, Refusal::unfinished);
}

/// Advances a handshake by one step. Returns false once it is over, successful or not. A refused client is told why.
bool ShmChannel::advance(Pending& pending) {
  try {
    std::optional<Packet> packet = receive_packet(pending.socket);
    if (!packet) return true;
    const auto [header, payload] = parse_frame(*packet);
    HandshakeFrame answer = pending.handshake->on_frame(header, payload);
    if (pending.handshake->open()) {
      admit(pending, std::move(packet->fds));
      pending.admitted = true;
      send_frame(links_.back().socket, answer);
      return false;
    }
    send_frame(pending.socket, answer);
    return !pending.handshake->refused();
  } catch (const Error& error) {
    if (!pending.socket || error.kind() == ErrorKind::peer_lost) return false;
    try {
      send_frame(pending.socket, refusal(options_.self.peer, error));
    } catch (const Error&) {
      // The client has hung up: there is nobody to tell.
    }
    return false;
  }
}

void ShmChannel::admit(Pending& pending, std::vector<Fd> files) {
  const Peer client = pending.handshake->client().peer;
  if (const Link* old = find(client)) {
    if (!old->closed && !hung_up(old->socket)) fail(ErrorKind::protocol, "{} is linked already", to_string(client));
    lost_.push_back(lost(client));
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, old->shm->bell().get(), nullptr);
    links_.erase(links_.begin() + (old - links_.data()));
  }
  auto link = std::make_unique<ShmLink>(options_.self.peer, client, std::move(files));
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.socket.get(), nullptr);
  open(std::move(pending.socket), std::move(link));
}

}  // namespace

std::string shm_name(std::uint64_t job, Peer listener) {
  return fmt::format("psring-{:016x}-{}-{}-{}", job, to_string(listener.role), listener.rank, ::getpid());
}

std::unique_ptr<Channel> listen_shm(const ShmOptions& options, const std::string& name) {
  return std::make_unique<ShmChannel>(listen_unix(name), options);
}

std::unique_ptr<Channel> connect_shm(const ShmOptions& options, Arena& arena, const std::map<Peer, std::string>& names,
                                     const Deadline& deadline) {
  auto channel = std::make_unique<ShmChannel>(Fd(), options);
  for (const auto& [server, name] : names) {
    try {
      Fd socket = connect_unix(name, deadline);
      auto link = std::make_unique<ShmLink>(options.self.peer, server, arena);
      shake_hands(socket, options.key, options.self, server, name, link->files(), deadline);
      channel->open(std::move(socket), std::move(link));
    } catch (const Error& error) {
      throw error.with_context(fmt::format("{} (shared memory)", to_string(server)));
    }
  }
  return channel;
}

}  // namespace psring::net
