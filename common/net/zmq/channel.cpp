#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <zmq.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/channel.h>
#include <psring/common/net/crowd.h>
#include <psring/common/net/zmq/channel.h>
#include <psring/common/net/zmq/dealer.h>
#include <psring/common/net/zmq/frame.h>
#include <psring/common/net/zmq/gate.h>
#include <psring/common/net/zmq/outbox.h>

namespace psring::net {
namespace {

/// Limit of unfinished handshakes; see most_crowding.
/// Limit of handshake frames and unknown frames per try_receive, so that strangers cannot block it.
constexpr int kHandshakesPerTry = 64;
constexpr int kLingerMs = 1000;
constexpr Nanoseconds kDrain = std::chrono::seconds(5);

/// Returns whether ZeroMQ made the routing id. A client that chooses its own id could take over another client's id.
bool is_automatic(const std::string& routing_id) { return routing_id.size() == 5 && routing_id[0] == '\0'; }

bool readable(const ZmqSocket& socket) { return (socket.get(ZMQ_EVENTS) & ZMQ_POLLIN) != 0; }

class ZmqChannelImpl final : public ZmqChannel {
 public:
  ZmqChannelImpl(ZmqContext& context, ZmqOptions options);
  ~ZmqChannelImpl() override;

  std::string listen(const std::string& address) override {
    check(!router_, "a channel listens once");
    ZmqSocket router(context_.handle(), ZMQ_ROUTER);
    set_link_options(router, options_.silence, address);
    router.set(ZMQ_ROUTER_MANDATORY, 1);
    if (options_.encrypt) {
      check(options_.authenticator != nullptr, "an encrypted channel listens only behind an authenticator");
      use_curve_server(router.handle(), options_.key.server_keys(), *options_.authenticator);
    }
    gate_.emplace(context_, router, options_.refusals,
                  ZmqGate::Limits{.most = kMostStrangers, .most_bytes = ZmqGate::kHandshakeBytes});
    if (zmq_bind(router.handle(), address.c_str()) != 0)
      fail(ErrorKind::data, "cannot listen at {}: {}", address, zmq_strerror(errno));
    router_ = std::move(router);
    watch(*router_, EPOLL_CTL_ADD);
    return router_->get_text(ZMQ_LAST_ENDPOINT);
  }

  void connect(const std::map<Peer, std::string>& endpoints, const Deadline& deadline) override {
    const SystemClock clock;
    std::vector<std::unique_ptr<ZmqDealer>> fresh;
    fresh.reserve(endpoints.size());
    for (const auto& [peer, endpoint] : endpoints)
      fresh.push_back(std::make_unique<ZmqDealer>(context_.handle(), options_, peer, endpoint, outbox_));
    for (;;) {
      std::vector<zmq_pollitem_t> items;
      const ZmqDealer* missing = nullptr;
      for (const auto& dealer : fresh) {
        if (!dealer->open()) dealer->advance();
        if (dealer->open()) continue;
        missing = dealer.get();
        items.push_back({dealer->socket().handle(), 0, dealer->awaited_events(), 0});
        items.push_back({dealer->monitor().handle(), 0, ZMQ_POLLIN, 0});
      }
      if (missing == nullptr) break;
      deadline.check();
      const Nanoseconds left = deadline.next_sleep(clock.now());
      if (left <= Nanoseconds(0))
        fail(ErrorKind::timeout, "no link to {} at {}: {}", to_string(missing->peer()), missing->endpoint(),
             missing->obstacle());
      const auto left_ms =
          std::chrono::ceil<std::chrono::milliseconds>(std::min<Nanoseconds>(left, std::chrono::hours(1)));
      zmq_poll(items.data(), static_cast<int>(items.size()), left_ms.count());
    }
    for (auto& dealer : fresh) {
      const Peer peer = dealer->peer();
      drop(peer);
      links_[peer] = {dealer->socket().handle(), {}, 0, dealer->lane(), dealer->endpoint()};
      watch(dealer->socket(), EPOLL_CTL_ADD);
      watch(dealer->monitor(), EPOLL_CTL_ADD);
      dealers_.push_back(std::move(dealer));
    }
  }

  std::uint64_t refused_frames() const override { return refused_frames_; }

  bool reaches(Peer peer) const override { return links_.contains(peer); }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override {
    check(payload.size() == header.payload_bytes && payload.size() <= kMaxPayloadBytes,
          "a payload of {} bytes, {} announced, {} allowed", payload.size(), header.payload_bytes, kMaxPayloadBytes);
    const auto found = links_.find(to);
    if (found == links_.end()) fail(ErrorKind::peer_lost, "{}: the link is gone", to_string(to));
    const Link& link = found->second;
    const int error = send_frame(link.socket, link.routing_id, link.lane, header, payload);
    if (error == 0) return;
    const std::string address = link.address;
    drop(to);
    fail(ErrorKind::peer_lost, "{} at {}: the link is gone", to_string(to), address);
  }

  std::optional<Message> try_receive() override {
    const std::size_t sockets = 1 + dealers_.size();
    for (std::size_t i = 0; i < sockets; ++i) {
      const std::size_t at = (next_ + i) % sockets;
      std::optional<Message> message = at == 0 ? receive_routed() : receive_from(at - 1);
      if (!message) continue;
      next_ = at + 1;
      woken_ = false;  // assume that this message was the cause; any other event wakes the channel again
      return message;
    }
    return std::nullopt;
  }

  bool arm() override {
    // The last try_receive took all events that ZeroMQ's threads had signalled. A later event wakes the sleeper at
    // once.
    if (!strangers_left_ && !std::exchange(woken_, false)) return true;
    // Reading a socket's events also clears the signal that made its descriptor readable. Only after all sockets are
    // read does wait_fd signal new events.
    bool quiet = !outbox_->take_ring();
    if (router_ && readable(*router_)) quiet = false;
    for (const auto& dealer : dealers_)
      if (readable(dealer->socket()) || dealer->closed()) quiet = false;
    return quiet;
  }

  void woken() override { woken_ = true; }
  void become(Identity self) override { options_.self = self; }
  void follow_departures() override {
    options_.follow_departures = true;
    outbox_->ring_always();
  }
  int wait_fd() const override { return epoll_.get(); }
  std::size_t in_flight_bytes(Peer peer) const override {
    const auto found = links_.find(peer);
    return found == links_.end() ? 0 : found->second.lane->bytes.load();
  }
  /// The header, and ZMTP's flags and sizes of the parts.
  std::size_t framing_bytes(std::size_t payload_bytes) const override {
    if (payload_bytes > kCopiedBytes) return kHeaderBytes + 2 + 9;
    return kHeaderBytes + (kHeaderBytes + payload_bytes <= 255 ? 2 : 9);
  }
  std::string describe(Peer peer) const override {
    const auto found = links_.find(peer);
    if (found == links_.end()) return "not linked";
    std::string_view address = found->second.address;
    if (address.starts_with("tcp://")) address.remove_prefix(6);
    return fmt::format("tcp {}{}", address, options_.encrypt ? ", encrypted" : "");
  }

 private:
  struct Link {
    void* socket = nullptr;
    std::string routing_id;  ///< empty for a dealer's link
    std::uint32_t incarnation = 0;
    std::shared_ptr<ZmqOutbox::Lane> lane;
    std::string address;
  };
  struct Stranger {
    std::string routing_id;
    ServerHandshake handshake;
    std::uint64_t origin;  ///< the client's host
  };

  std::optional<Message> receive_routed() {
    if (!router_) return std::nullopt;
    strangers_left_ = false;
    for (int i = 0; i < kHandshakesPerTry; ++i) {
      const auto frame = receive_frame(router_->handle(), true);
      if (!frame) return std::nullopt;
      const auto route = routes_.find(frame->routing_id);
      if (route != routes_.end()) return checked(*frame, route->second);
      advance_handshake(*frame);
    }
    strangers_left_ = true;
    return std::nullopt;
  }

  std::optional<Message> receive_from(std::size_t index) {
    ZmqDealer& dealer = *dealers_[index];
    if (const auto frame = receive_frame(dealer.socket().handle(), false)) return checked(*frame, dealer.peer());
    if (!dealer.known_closed()) return std::nullopt;
    const std::string line = fmt::format("{} at {} closed the connection", to_string(dealer.peer()), dealer.endpoint());
    drop(dealer.peer());
    throw Error(ErrorKind::peer_lost, line);
  }

  /// Checks a frame of an open link. An invalid frame costs the link.
  Message checked(const ZmqFrame& frame, Peer peer) {
    const Link& link = links_.at(peer);
    try {
      Message message = to_message(frame);
      const FrameType type = message.header.type;
      if (type == FrameType::refused && link.routing_id.empty())
        fail(ErrorKind::peer_lost, "the peer closed the link: {}", one_line(message.payload));
      if (type <= FrameType::refused) fail(ErrorKind::protocol, "{} on an open link", to_string(type));
      if (message.header.sender() != peer || message.header.job != options_.key.job_id())
        fail(ErrorKind::protocol, "{} claims to come from {}", to_string(type), to_string(message.header.sender()));
      return message;
    } catch (const Error& error) {
      const Error refusal = error.with_context(fmt::format("{} at {}", to_string(peer), link.address));
      drop(peer);
      throw refusal;
    }
  }

  /// Advances the handshake of a client that has not proved the key yet.
  void advance_handshake(const ZmqFrame& frame) {
    const auto known = std::find_if(strangers_.begin(), strangers_.end(),
                                    [&](const Stranger& s) { return s.routing_id == frame.routing_id; });
    Stranger stranger = known != strangers_.end() ? std::move(*known)
                                                  : Stranger{frame.routing_id,
                                                             {options_.key, options_.self, random_nonce()},
                                                             std::hash<std::string>()(frame.address)};
    if (known != strangers_.end()) strangers_.erase(known);
    std::optional<Message> message;
    try {
      message = to_message(frame);
    } catch (const Error&) {
    }
    if (!message || !is_automatic(frame.routing_id)) {
      ++refused_frames_;
      return;
    }
    HandshakeFrame answer = stranger.handshake.on_frame(message->header, message->payload);
    if (stranger.handshake.open()) answer = admit(stranger, frame, answer);
    if (stranger.handshake.refused()) ++refused_frames_;
    if (stranger.handshake.wrong_key()) gate_->note_wrong_key(frame.connection);
    const auto lane = std::make_shared<ZmqOutbox::Lane>(outbox_);
    send_frame(router_->handle(), frame.routing_id, lane, answer.header, answer.payload);
    if (answer.header.type != FrameType::challenge) return;
    if (strangers_.size() >= kMostStrangers)
      strangers_.erase(most_crowding(strangers_, [](const Stranger& other) { return std::optional(other.origin); }));
    strangers_.push_back(std::move(stranger));
  }

  HandshakeFrame admit(Stranger& stranger, const ZmqFrame& frame, const HandshakeFrame& accepted) {
    const Identity client = stranger.handshake.client();
    const auto old = links_.find(client.peer);
    if (old != links_.end() && old->second.incarnation > client.incarnation)
      return stranger.handshake.refuse("a later incarnation of this peer has a link already");
    drop(client.peer);
    links_[client.peer] = {router_->handle(), frame.routing_id, client.incarnation,
                           std::make_shared<ZmqOutbox::Lane>(outbox_), frame.address};
    routes_[frame.routing_id] = client.peer;
    gate_->trust(frame.connection);
    return accepted;
  }

  /// Removes the link to the peer, if there is one.
  void drop(Peer peer) {
    const auto link = links_.find(peer);
    if (link == links_.end()) return;
    routes_.erase(link->second.routing_id);
    links_.erase(link);
    const auto dealer =
        std::find_if(dealers_.begin(), dealers_.end(), [&](const auto& other) { return other->peer() == peer; });
    if (dealer == dealers_.end()) return;
    watch((*dealer)->socket(), EPOLL_CTL_DEL);
    watch((*dealer)->monitor(), EPOLL_CTL_DEL);
    dealers_.erase(dealer);
  }

  void watch(const ZmqSocket& socket, int operation) { watch(socket.get(ZMQ_FD), operation); }
  void watch(int fd, int operation) {
    epoll_event event{};
    event.events = EPOLLIN;
    const int result = ::epoll_ctl(epoll_.get(), operation, fd, &event);
    check(result == 0, "epoll: {}", std::strerror(errno));
  }

  ZmqContext& context_;
  ZmqOptions options_;
  const int exceptions_ = std::uncaught_exceptions();
  const Fd epoll_;
  const std::shared_ptr<ZmqOutbox> outbox_;
  std::optional<ZmqSocket> router_;
  std::optional<ZmqGate> gate_;  ///< of the router
  std::vector<std::unique_ptr<ZmqDealer>> dealers_;
  std::map<Peer, Link> links_;
  std::map<std::string, Peer> routes_;  ///< links of the router, by routing id
  std::vector<Stranger> strangers_;     ///< oldest first
  bool strangers_left_ = false;         ///< try_receive returned before it had seen all frames
  bool woken_ = false;                  ///< set by woken; cleared by the next message
  std::uint64_t refused_frames_ = 0;
  std::size_t next_ = 0;  ///< the socket to try first: 0 is the router
};

ZmqChannelImpl::ZmqChannelImpl(ZmqContext& context, ZmqOptions options)
    : context_(context),
      options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      outbox_(std::make_shared<ZmqOutbox>(options_.low_water_bytes)) {
  check(static_cast<bool>(epoll_), "cannot make an epoll: {}", std::strerror(errno));
  watch(outbox_->fd(), EPOLL_CTL_ADD);
}

ZmqChannelImpl::~ZmqChannelImpl() {
  const int linger = std::uncaught_exceptions() > exceptions_ ? 0 : kLingerMs;
  if (router_) router_->set(ZMQ_LINGER, linger);
  for (const auto& dealer : dealers_) dealer->socket().set(ZMQ_LINGER, linger);
  gate_.reset();
  router_.reset();
  dealers_.clear();
  outbox_->drain(SystemClock().now() + kDrain);
}

}  // namespace

std::unique_ptr<ZmqChannel> make_zmq_channel(ZmqContext& context, ZmqOptions options) {
  return std::make_unique<ZmqChannelImpl>(context, options);
}

}  // namespace psring::net
