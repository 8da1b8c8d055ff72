#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/net/tcp/link.h>
#include <psring/common/net/tcp/listener.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/tcp/stream.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {
namespace {

/// Up to this number of sockets, trying each of them is quicker than asking epoll which of them is readable.
constexpr std::size_t kFewStreams = 4;
constexpr Nanoseconds kLinger = std::chrono::seconds(1);  ///< without any byte that arrives
constexpr Nanoseconds kLongestLinger = std::chrono::seconds(10);

std::uint64_t random_mark() {
  std::uint64_t mark = 0;
  const Nonce nonce = random_nonce();
  std::memcpy(&mark, nonce.data(), sizeof mark);
  return mark;
}

class TcpChannelImpl final : public TcpChannel {
 public:
  explicit TcpChannelImpl(TcpOptions options);
  ~TcpChannelImpl() override;

  std::string listen(const std::string& host, std::uint16_t port) override {
    std::string endpoint = listener_.listen(host, port);
    watch(listener_.socket().get(), EPOLLIN | EPOLLET, &listener_);
    return endpoint;
  }

  void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) override {
    std::vector<TcpOpening> openings;
    for (const auto& [peer, endpoint] : endpoints) {
      const std::uint64_t mark = random_mark();
      for (std::size_t i = 0; i < options_.streams; ++i)
        openings.push_back(open(peer, endpoint, {mark, i, options_.streams, options_.encrypt}));
    }
    for (;;) {
      const TcpOpening* missing = nullptr;
      for (TcpOpening& opening : openings) {
        if (!opening.open()) opening.advance();
        if (!opening.open()) missing = &opening;
      }
      if (missing == nullptr) break;
      if (!wait_for(epoll_, POLLIN, deadline))
        fail(ErrorKind::timeout, "no link to {} at {}: {}", to_string(missing->peer()), missing->where(),
             missing->obstacle());
      look();
    }
    for (std::size_t i = 0; i < openings.size(); i += options_.streams) {
      std::vector<Stream> streams;
      for (std::size_t k = 0; k < options_.streams; ++k) streams.push_back(openings[i + k].take_stream());
      add_link(openings[i].peer(), 0, openings[i].where(), std::move(streams));
    }
  }

  void await_links(const std::set<Peer>& peers, const Deadline& deadline) override {
    const auto missing = [&] {
      return std::find_if(peers.begin(), peers.end(), [&](Peer peer) { return !reaches(peer); });
    };
    for (auto at = missing(); at != peers.end(); at = missing()) {
      if (!wait_for(epoll_, POLLIN, deadline))
        fail(ErrorKind::timeout, "{} has not connected to {} in time", to_string(*at),
             listener_.socket() ? listener_.endpoint() : "this process");
      look();
    }
  }

  void become(Identity self) override {
    options_.self = self;
    listener_.become(self);
  }
  bool reaches(Peer peer) const override { return find(peer) != nullptr; }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override {
    check(payload.size() == header.payload_bytes && payload.size() <= kMaxPayloadBytes,
          "a payload of {} bytes, {} announced, {} allowed", payload.size(), header.payload_bytes, kMaxPayloadBytes);
    TcpLink* const link = find(to);
    if (link == nullptr) fail(ErrorKind::peer_lost, "{}: the link is gone", to_string(to));
    if (link->send(header, payload)) unsent_ = true;
  }

  std::optional<Message> try_receive() override {
    const bool few = streams_ <= kFewStreams;
    if (armed_ || unsent_ || !few || ++calls_ % kCallsPerLook == 0) look();
    armed_ = false;
    if (!lost_.empty()) {
      const Error error = lost_.front();
      lost_.pop_front();
      throw error;
    }
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const std::size_t at = (next_ + i) % links_.size();
      TcpLink& link = *links_[at];
      if (few) link.try_next_stream();
      std::optional<Message> message;
      try {
        message = link.receive([this, &link](const FrameHeader& header) { return admit(link.peer(), header); });
      } catch (const Error& error) {
        drop(at, error);
      }
      if (!message) continue;
      next_ = at + 1;
      return message;
    }
    return std::nullopt;
  }

  bool arm() override {
    look();
    armed_ = true;
    if (listener_.crowded() || !lost_.empty() || std::exchange(left_, false)) return false;
    return std::none_of(links_.begin(), links_.end(), [](const auto& link) { return link->readable(); });
  }

  int wait_fd() const override { return epoll_.get(); }
  void place_payloads(const Place& place) override { place_ = place; }

  std::size_t in_flight_bytes(Peer peer) const override {
    const TcpLink* const link = find(peer);
    return link == nullptr ? 0 : link->unsent_bytes();
  }

  /// Frames take turns on the streams, and a stream may be behind the others.
  bool leaves_in_order(Peer peer) const override {
    const TcpLink* const link = find(peer);
    return link == nullptr || link->streams() == 1;
  }

  /// Encryption adds a seal to the header and to each chunk of the payload.
  std::size_t framing_bytes(std::size_t payload_bytes) const override {
    const std::size_t chunks = round_up(payload_bytes, TcpStream::kChunkBytes) / TcpStream::kChunkBytes;
    return kHeaderBytes + (options_.encrypt ? (1 + chunks) * kSealBytes : 0);
  }
  std::string describe(Peer peer) const override {
    const TcpLink* const link = find(peer);
    if (link == nullptr) return "not linked";
    return fmt::format("tcp {}{}{}", link->where(),
                       link->streams() > 1 ? fmt::format(", {} streams", link->streams()) : "",
                       options_.encrypt ? ", encrypted" : "");
  }

 private:
  using Stream = std::unique_ptr<TcpStream>;  ///< epoll points at it

  void watch(int fd, std::uint32_t events, void* whom) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = whom;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      fail(ErrorKind::data, "cannot watch a socket: {}", std::strerror(errno));
  }

  /// The interest is edge-triggered: no system call turns the interest in writability on and off.
  Stream make_stream(Fd socket) {
    set_link_options(socket, options_.silence);
    auto stream = std::make_unique<TcpStream>(std::move(socket), pool_);
    watch(stream->socket().get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, stream.get());
    return stream;
  }

  TcpOpening open(Peer peer, const std::string& endpoint, const TcpPart& part) {
    try {
      return {options_.key, options_.self, peer, endpoint, part, make_stream(start_connect(endpoint))};
    } catch (const Error& error) {
      throw error.with_context(fmt::format("{} at {}", to_string(peer), endpoint));
    }
  }

  /// Handles the events of all descriptors, and continues to send.
  void look() {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    bool ticked = false;
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == &timer_) {
        ticked = true;
      } else if (event.data.ptr == &listener_) {
        listener_.on_knock();
      } else {
        static_cast<TcpStream*>(event.data.ptr)->on_events(event.events);
      }
    }
    if (unsent_) flush();
    if (ticked) tick();
    for (TcpListener::Opened& opened : listener_.serve([this](const Identity& client) { return objection(client); }))
      add_link(opened.client.peer, opened.client.incarnation, opened.where, std::move(opened.streams));
  }

  void flush() {
    unsent_ = false;
    for (const auto& link : links_) {
      if (link->flush()) left_ = true;
      unsent_ = unsent_ || link->unsent();
    }
  }

  /// Returns the reason why a client may not be linked; "" if it may.
  std::string objection(const Identity& client) const {
    const TcpLink* const old = find(client.peer);
    const bool gone = old == nullptr || old->incarnation() < client.incarnation || old->hung_up();
    return gone ? "" : fmt::format("{} is linked already", to_string(client.peer));
  }

  /// An older link with the same peer is lost.
  void add_link(Peer peer, std::uint32_t incarnation, const std::string& where, std::vector<Stream> streams) {
    const auto old = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link->peer() == peer; });
    if (old != links_.end()) {
      lost_.emplace_back(ErrorKind::peer_lost, (*old)->name() + ": it has opened a new link");
      streams_ -= (*old)->streams();
      links_.erase(old);
    }
    TcpLink& link = *links_.emplace_back(std::make_unique<TcpLink>(peer, incarnation, where, std::move(streams)));
    streams_ += link.streams();
    link.try_all_streams();
    unsent_ = unsent_ || link.unsent();
  }

  /// Checks the header of an arriving frame; a wrong header ends the link. Returns the place for the payload.
  std::span<std::byte> admit(Peer peer, const FrameHeader& header) const {
    if (header.type <= FrameType::refused) fail(ErrorKind::protocol, "{} on an open link", to_string(header.type));
    if (header.sender() != peer || header.job != options_.key.job_id())
      fail(ErrorKind::protocol, "{} in the name of {}", to_string(header.type), to_string(header.sender()));
    return place_ && header.payload_bytes > 0 ? place_(header) : std::span<std::byte>();
  }

  void tick() {
    std::uint64_t ticks = 0;
    [[maybe_unused]] const ssize_t read = ::read(timer_.get(), &ticks, sizeof ticks);
    const Moment now = SystemClock().now();
    listener_.expire(now);
    for (const auto& link : links_) link->check_silence(now, options_.silence);
  }

  /// Removes a link, and throws its error with the name of the peer.
  [[noreturn]] void drop(std::size_t index, const Error& error) {
    const std::string name = links_[index]->name();
    streams_ -= links_[index]->streams();
    links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
    lingers_ = false;
    throw error.with_context(name);
  }

  /// Waits until all bytes that were sent have reached the other ends' kernels. Closing a socket with unread bytes
  /// makes TCP reset the connection, and the bytes in flight would be lost. A busy host may take longer than kLinger
  /// for all of them. No event reports acknowledgements, so this function polls.
  void linger() {
    constexpr std::chrono::milliseconds kPause{1};
    const auto unacknowledged = [this] {
      std::size_t bytes = 0;
      for (const auto& link : links_) bytes += link->unacknowledged_bytes();
      return bytes;
    };
    const Moment begin = SystemClock().now();
    Moment progress = begin;
    std::size_t left = unacknowledged();
    const auto settled = [](const auto& link) { return link->settled(); };
    while (!std::all_of(links_.begin(), links_.end(), settled)) {
      const Moment now = SystemClock().now();
      if (const std::size_t before = std::exchange(left, unacknowledged()); left != before) progress = now;
      if (now >= progress + kLinger || now >= begin + kLongestLinger) return;
      pollfd item{epoll_.get(), POLLIN, 0};
      ::poll(&item, 1, kPause.count());
      look();
    }
  }

  TcpLink* find(Peer peer) const {
    const auto at = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link->peer() == peer; });
    return at == links_.end() ? nullptr : at->get();
  }

  // Constant after construction, except options_.self.
  TcpOptions options_;
  const int exceptions_ = std::uncaught_exceptions();
  const std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();  ///< shared with the blocks of messages
  const Fd epoll_;
  const Fd timer_;  ///< ticks for the cases without an event: silent strangers, and peers that do not answer

  TcpListener listener_;
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::deque<Error> lost_;  ///< losses of replaced links, which try_receive throws next
  Place place_;
  std::size_t streams_ = 0;  ///< the number of streams of all links
  std::size_t next_ = 0;     ///< the link that try_receive looks at first
  std::size_t calls_ = 0;    ///< calls of try_receive
  bool armed_ = false;       ///< `arm` was called, and try_receive was not called since
  bool lingers_ = true;      ///< no link was lost: the destructor waits for the bytes in flight
  bool unsent_ = false;      ///< a stream may have frames left to send
  bool left_ = false;        ///< bytes have left since the last `arm`
};

TcpChannelImpl::TcpChannelImpl(TcpOptions options)
    : options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      listener_(options_, [this](Fd socket) { return make_stream(std::move(socket)); }) {
  if (!epoll_ || !timer_)
    fail(ErrorKind::data, "cannot create an epoll instance and a timer: {}", std::strerror(errno));
  if (options_.streams < 1 || options_.streams > kMaxTcpStreams)
    fail(ErrorKind::usage, "a link of {} streams: expected 1 to {}", options_.streams, kMaxTcpStreams);
  const Nanoseconds tick =
      std::max<Nanoseconds>(std::min(options_.silence, options_.handshake_timeout) / 4, std::chrono::milliseconds(1));
  const timespec period{tick.count() / 1'000'000'000, tick.count() % 1'000'000'000};
  const itimerspec spec{period, period};
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
  watch(timer_.get(), EPOLLIN, const_cast<Fd*>(&timer_));
}

TcpChannelImpl::~TcpChannelImpl() {
  if (lingers_ && std::uncaught_exceptions() == exceptions_) linger();
}

}  // namespace

std::unique_ptr<TcpChannel> make_tcp_channel(TcpOptions options) { return std::make_unique<TcpChannelImpl>(options); }

}  // namespace psring::net
