#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/shm/channel.h>
#include <psring/common/net/shm/gate.h>
#include <psring/common/net/shm/link.h>
#include <psring/common/net/shm/unix_handshake.h>

namespace psring::net {
namespace {

class ShmChannel final : public Channel {
 public:
  /// `listener`: empty on the connecting side.
  ShmChannel(Fd listener, const ShmOptions& options) : self_(options.self), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) fail(ErrorKind::data, "cannot make an epoll: {}", std::strerror(errno));
    if (!listener) return;
    gate_.emplace(std::move(listener), options);
    watch(epoll_, gate_->wait_fd(), EPOLLIN);
  }

  /// Adds a link whose peer has proved the key.
  void open(Fd socket, std::unique_ptr<ShmLink> link) {
    watch(epoll_, socket, EPOLLIN | EPOLLRDHUP);
    // Edge-triggered: the bell need not be read before it can ring again.
    watch(epoll_, link->bell(), EPOLLIN | EPOLLET);
    links_.push_back({std::move(socket), std::move(link), false});
  }

  bool is_memory() const override { return true; }
  bool reaches(Peer peer) const override { return find(peer) != nullptr; }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override {
    const Link* link = find(to);
    if (link == nullptr) throw lost(to);
    try {
      link->shm->send(header, payload);
    } catch (const Error& error) {
      drop(static_cast<std::size_t>(link - links_.data()), error);
    }
  }

  std::optional<Message> try_receive() override {
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

  bool arm() override {
    if (!lost_.empty()) return false;
    for (const Link& link : links_)
      if (link.closed || !link.shm->arm()) return false;
    return true;
  }

  void woken() override { woken_ = true; }
  void become(Identity self) override {
    self_ = self;
    if (gate_) gate_->become(self);
  }
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
  /// Handles all events of the sockets.
  void poll_sockets() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      // The only event of a link's socket is its end.
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      for (Link& link : links_) link.closed = link.closed || link.socket.get() == fd;
    }
    if (gate_)
      gate_->poll([this](Identity client, Fd& socket, std::vector<Fd> files) -> const Fd& {
        return admit(client.peer, socket, std::move(files));
      });
  }

  /// Opens the link of a client that has proved the key.
  const Fd& admit(Peer client, Fd& socket, std::vector<Fd> files) {
    if (const Link* old = find(client)) {
      if (!old->closed && !hung_up(old->socket)) fail(ErrorKind::protocol, "{} is linked already", to_string(client));
      lost_.push_back(lost(client));
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, old->shm->bell().get(), nullptr);
      links_.erase(links_.begin() + (old - links_.data()));
    }
    open(std::move(socket), std::make_unique<ShmLink>(self_.peer, client, std::move(files)));
    return links_.back().socket;
  }

  /// Removes a link, and throws `error` with the peer's name.
  [[noreturn]] void drop(std::size_t index, const Error& error) {
    const std::string name = fmt::format("{} (process {} of this host)", to_string(links_[index].shm->peer()),
                                         process_behind(links_[index].socket));
    // Messages may keep the bell's file open, so the file is removed from the epoll explicitly.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, links_[index].shm->bell().get(), nullptr);
    links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
    throw error.with_context(name);
  }

  const Link* find(Peer peer) const {
    const auto at = std::find_if(links_.begin(), links_.end(), [&](const Link& l) { return l.shm->peer() == peer; });
    return at == links_.end() ? nullptr : &*at;
  }
  Error lost(Peer peer) const {
    return Error(ErrorKind::peer_lost,
                 fmt::format("{}: the peer closed its end of the shared memory", to_string(peer)));
  }

  Identity self_;
  const Fd epoll_;
  std::optional<UnixGate> gate_;  ///< none on the connecting side
  std::vector<Link> links_;
  std::deque<Error> lost_;  ///< peers that were replaced before their loss was reported
  std::size_t next_ = 0;    ///< the link to try first
  std::size_t calls_ = 0;
  bool woken_ = false;
};

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
