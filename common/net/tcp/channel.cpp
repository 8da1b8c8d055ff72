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

#include <psring/common/base/error.h>
#include <psring/common/net/tcp/channel.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/net/tcp/listener.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/tcp/stream.h>
#include <psring/common/net/unix_socket.h>

namespace psring::net {
namespace {

/// With so few sockets it is quicker to try each of them than to ask epoll which one has something.
constexpr std::size_t kFewStreams = 4;
constexpr std::size_t kCallsPerLook = 128;  ///< try_receive asks epoll at least this often while frames flow
constexpr Nanoseconds kLinger = std::chrono::seconds(1);

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

  std::string listen(const std::string& host, std::uint16_t port) override;
  void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) override;
  void await_links(const std::set<Peer>& peers, const Deadline& deadline) override;

  void become(Identity self) override {
    options_.self = self;
    listener_.become(self);
  }
  bool reaches(Peer peer) const override { return find(peer) != nullptr; }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override;
  std::optional<Message> try_receive() override;
  bool arm() override;
  int wait_fd() const override { return epoll_.get(); }
  void place_payloads(const Place& place) override { place_ = place; }

  std::size_t in_flight_bytes(Peer peer) const override;
  /// Encrypted, the header and each chunk of the payload have a seal.
  std::size_t framing_bytes(std::size_t payload_bytes) const override {
    const std::size_t chunks = round_up(payload_bytes, TcpStream::kChunkBytes) / TcpStream::kChunkBytes;
    return kHeaderBytes + (options_.encrypt ? (1 + chunks) * kSealBytes : 0);
  }
  std::string describe(Peer peer) const override;

 private:
  using Stream = std::unique_ptr<TcpStream>;  ///< epoll points at it
  struct Link {
    Peer peer;
    std::uint32_t incarnation = 0;
    std::string where;
    std::vector<Stream> streams;
    std::vector<std::optional<Message>> early;  ///< of each stream, where its turn has not come
    std::size_t send_turn = 0;
    std::size_t receive_turn = 0;
    bool ending = false;
    std::optional<Moment> unanswered_since;

    std::string name() const { return fmt::format("{} at {}", to_string(peer), where); }
  };
  void watch(int fd, std::uint32_t events, void* whom);
  Stream make_stream(Fd socket);
  TcpOpening open(Peer peer, const std::string& endpoint, const TcpPart& part);
  void look();
  void flush();
  std::string objection(const Identity& client) const;
  void add_link(Peer peer, std::uint32_t incarnation, const std::string& where, std::vector<Stream> streams);
  std::span<std::byte> admit(Peer peer, const FrameHeader& header) const;
  void tick();
  std::optional<Message> next(Link& link);
  [[noreturn]] void drop(std::size_t index, const Error& error);
  void linger();

  Link* find(Peer peer) const {
    const auto at = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link->peer == peer; });
    return at == links_.end() ? nullptr : at->get();
  }

  TcpOptions options_;  ///< constant but for `self`
  // Constant after construction.
  const int exceptions_ = std::uncaught_exceptions();
  const std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();  ///< shared with the blocks of messages
  const Fd epoll_;
  const Fd timer_;  ///< ticks for what no event tells of: strangers that say nothing, peers that answer nothing

  TcpListener listener_;
  std::vector<std::unique_ptr<Link>> links_;
  std::deque<Error> lost_;  ///< links that were replaced before their loss was told
  Place place_;
  std::size_t streams_ = 0;  ///< of all links
  std::size_t next_ = 0;     ///< the link that is tried first
  std::size_t calls_ = 0;
  bool armed_ = false;
  bool lingers_ = true;  ///< no link was lost: what is under way is still waited for
  bool unsent_ = false;  ///< some stream has frames left to send
  bool left_ = false;    ///< some of them left since the last `arm`
};

TcpChannelImpl::TcpChannelImpl(TcpOptions options)
    : options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      listener_(options_, [this](Fd socket) { return make_stream(std::move(socket)); }) {
  if (!epoll_ || !timer_) fail(ErrorKind::data, "cannot make an epoll and a timer: {}", std::strerror(errno));
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

void TcpChannelImpl::watch(int fd, std::uint32_t events, void* whom) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = whom;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    fail(ErrorKind::data, "cannot watch a socket: {}", std::strerror(errno));
}

/// Edge-triggered: no system call turns the interest in room for more on and off.
TcpChannelImpl::Stream TcpChannelImpl::make_stream(Fd socket) {
  set_link_options(socket, options_.silence);
  auto stream = std::make_unique<TcpStream>(std::move(socket), pool_);
  watch(stream->socket().get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, stream.get());
  return stream;
}

std::string TcpChannelImpl::listen(const std::string& host, std::uint16_t port) {
  std::string endpoint = listener_.listen(host, port);
  watch(listener_.socket().get(), EPOLLIN | EPOLLET, &listener_);
  return endpoint;
}

void TcpChannelImpl::connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) {
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

TcpOpening TcpChannelImpl::open(Peer peer, const std::string& endpoint, const TcpPart& part) {
  try {
    return {options_.key, options_.self, peer, endpoint, part, make_stream(start_connect(endpoint))};
  } catch (const Error& error) {
    throw error.with_context(fmt::format("{} at {}", to_string(peer), endpoint));
  }
}

void TcpChannelImpl::await_links(const std::set<Peer>& peers, const Deadline& deadline) {
  const auto missing = [&] {
    return std::find_if(peers.begin(), peers.end(), [&](Peer peer) { return !reaches(peer); });
  };
  for (auto at = missing(); at != peers.end(); at = missing()) {
    if (!wait_for(epoll_, POLLIN, deadline))
      fail(ErrorKind::timeout, "{} has not connected to {} in time", to_string(*at),
           listener_.socket() ? listener_.endpoint() : "us");
    look();
  }
}

void TcpChannelImpl::send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) {
  check(payload.size() == header.payload_bytes && payload.size() <= kMaxPayloadBytes,
        "a payload of {} bytes, {} announced, {} allowed", payload.size(), header.payload_bytes, kMaxPayloadBytes);
  Link* link = find(to);
  if (link == nullptr) fail(ErrorKind::peer_lost, "{}: the link is gone", to_string(to));
  TcpStream& stream = *link->streams[link->send_turn];
  link->send_turn = (link->send_turn + 1) % link->streams.size();
  stream.send(header, payload);
  unsent_ = unsent_ || stream.unsent();
}

std::optional<Message> TcpChannelImpl::try_receive() {
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
    Link& link = *links_[at];
    if (few) link.streams[link.receive_turn]->try_anyway();
    std::optional<Message> message;
    try {
      message = next(link);
    } catch (const Error& error) {
      drop(at, error);
    }
    if (!message) continue;
    next_ = at + 1;
    return message;
  }
  return std::nullopt;
}

/// The link's next frame. Throws peer_lost at its end.
std::optional<Message> TcpChannelImpl::next(Link& link) {
  const std::size_t count = link.streams.size();
  const Place place = [this, &link](const FrameHeader& header) { return admit(link.peer, header); };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (link.receive_turn + i) % count;
    if (!link.early[at]) link.early[at] = link.streams[at]->receive(place);
    if (i > 0 || !link.early[at]) continue;
    link.receive_turn = (at + 1) % count;
    return std::exchange(link.early[at], std::nullopt);
  }
  // Where one stream has ended the link has, but the others may still bring what was sent before.
  if (!link.ending && std::any_of(link.streams.begin(), link.streams.end(), [](auto& s) { return s->broken(); })) {
    link.ending = true;
    for (const Stream& stream : link.streams) stream->shut_down();
  }
  if (const TcpStream& stream = *link.streams[link.receive_turn]; stream.closed())
    fail(ErrorKind::peer_lost, "{}", stream.end());
  return std::nullopt;
}

/// Forgets a link, and says whose it was.
void TcpChannelImpl::drop(std::size_t index, const Error& error) {
  const std::string name = links_[index]->name();
  streams_ -= links_[index]->streams.size();
  links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
  lingers_ = false;
  throw error.with_context(name);
}

bool TcpChannelImpl::arm() {
  look();
  armed_ = true;
  if (listener_.crowded() || !lost_.empty() || std::exchange(left_, false)) return false;
  for (const auto& link : links_)
    for (std::size_t i = 0; i < link->streams.size(); ++i)
      if (!link->early[i] && link->streams[i]->readable()) return false;
  return true;
}

std::size_t TcpChannelImpl::in_flight_bytes(Peer peer) const {
  const Link* link = find(peer);
  std::size_t bytes = 0;
  if (link != nullptr)
    for (const Stream& stream : link->streams) bytes += stream->unsent_bytes();
  return bytes;
}

std::string TcpChannelImpl::describe(Peer peer) const {
  const Link* link = find(peer);
  if (link == nullptr) return "not linked";
  return fmt::format("tcp {}{}{}", link->where,
                     link->streams.size() > 1 ? fmt::format(", {} streams", link->streams.size()) : "",
                     options_.encrypt ? ", encrypted" : "");
}

/// Whatever the descriptors have to say; also sends what there is room for.
void TcpChannelImpl::look() {
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

void TcpChannelImpl::flush() {
  unsent_ = false;
  for (const auto& link : links_)
    for (const Stream& stream : link->streams) {
      if (stream->flush()) left_ = true;
      unsent_ = unsent_ || stream->unsent();
    }
}

/// Why a client may not be linked.
std::string TcpChannelImpl::objection(const Identity& client) const {
  const Link* old = find(client.peer);
  const bool gone = old == nullptr || old->incarnation < client.incarnation ||
                    std::any_of(old->streams.begin(), old->streams.end(), [](auto& s) { return s->hung_up(); });
  return gone ? "" : fmt::format("{} is linked already", to_string(client.peer));
}

/// A link that the peer had before is lost.
void TcpChannelImpl::add_link(Peer peer, std::uint32_t incarnation, const std::string& where,
                              std::vector<Stream> streams) {
  const auto old = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link->peer == peer; });
  if (old != links_.end()) {
    lost_.emplace_back(ErrorKind::peer_lost, (*old)->name() + ": it has opened a new link");
    streams_ -= (*old)->streams.size();
    links_.erase(old);
  }
  auto link = std::make_unique<Link>();
  link->peer = peer;
  link->incarnation = incarnation;
  link->where = where;
  link->early.resize(streams.size());
  link->streams = std::move(streams);
  streams_ += link->streams.size();
  for (const Stream& stream : link->streams) {
    stream->try_anyway();
    unsent_ = unsent_ || stream->unsent();
  }
  links_.push_back(std::move(link));
}

/// What is wrong with a header costs the link.
std::span<std::byte> TcpChannelImpl::admit(Peer peer, const FrameHeader& header) const {
  if (header.type <= FrameType::refused) fail(ErrorKind::protocol, "{} on an open link", to_string(header.type));
  if (header.sender() != peer || header.job != options_.key.job_id())
    fail(ErrorKind::protocol, "{} in the name of {}", to_string(header.type), to_string(header.sender()));
  return place_ && header.payload_bytes > 0 ? place_(header) : std::span<std::byte>();
}

void TcpChannelImpl::tick() {
  std::uint64_t ticks = 0;
  [[maybe_unused]] const ssize_t read = ::read(timer_.get(), &ticks, sizeof ticks);
  const Moment now = SystemClock().now();
  listener_.expire(now);
  for (const auto& link : links_) {
    const bool silent =
        std::any_of(link->streams.begin(), link->streams.end(), [](auto& s) { return unanswered(s->socket()); });
    if (!silent) {
      link->unanswered_since.reset();
    } else if (!link->unanswered_since) {
      link->unanswered_since = now;
    } else if (now - *link->unanswered_since >= options_.silence) {
      for (const Stream& stream : link->streams)
        stream->give_up(fmt::format("no answer for {:.1f} s", seconds(now - *link->unanswered_since)));
    }
  }
}

/// Waits until what was sent has reached the other ends' kernels. Where we close with something unread, TCP resets the
/// connection, and what is still on its way would be lost; no event tells of acknowledgements.
void TcpChannelImpl::linger() {
  constexpr std::chrono::milliseconds kLook{1};
  const Moment deadline = SystemClock().now() + kLinger;
  const auto done = [](const auto& link) {
    return std::all_of(link->streams.begin(), link->streams.end(), [](const Stream& stream) {
      return stream->hung_up() || (!stream->unsent() && all_acknowledged(stream->socket()));
    });
  };
  while (!std::all_of(links_.begin(), links_.end(), done)) {
    const Moment now = SystemClock().now();
    if (now >= deadline) return;
    pollfd item{epoll_.get(), POLLIN, 0};
    ::poll(&item, 1, kLook.count());
    look();
  }
}

}  // namespace

std::unique_ptr<TcpChannel> make_tcp_channel(TcpOptions options) { return std::make_unique<TcpChannelImpl>(options); }

}  // namespace psring::net
