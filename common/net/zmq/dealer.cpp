#include <cerrno>
#include <utility>

#include <zmq.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/common/net/zmq/dealer.h>

namespace psring::net {
namespace {

bool is_rejection(ZmqMonitor::Event event) {
  return event == ZmqMonitor::Event::denied || event == ZmqMonitor::Event::rejected;
}

}  // namespace
namespace {

constexpr int kRetryMs = 10;
constexpr int kLongestRetryMs = 200;

ZmqSocket make_socket(void* context, const ZmqOptions& options, const std::string& endpoint) {
  ZmqSocket socket(context, ZMQ_DEALER);
  set_link_options(socket, options.silence, endpoint);
  // Frames use this one connection or none: no frame may wait for a later connection, which has not proved the key.
  socket.set(ZMQ_IMMEDIATE, 1);
  socket.set(ZMQ_RECONNECT_IVL, kRetryMs);
  socket.set(ZMQ_RECONNECT_IVL_MAX, kLongestRetryMs);
  if (options.encrypt)
    use_curve_client(socket.handle(), options.key.client_keys(), options.key.server_keys().public_key);
  return socket;
}

std::string unique_name(const void* object) { return fmt::format("psring-monitor-{}", object); }

}  // namespace

ZmqDealer::ZmqDealer(void* context, const ZmqOptions& options, Peer peer, const std::string& endpoint,
                     std::shared_ptr<ZmqOutbox> outbox)
    : peer_(peer),
      endpoint_(endpoint),
      encrypt_(options.encrypt),
      socket_(make_socket(context, options, endpoint)),
      monitor_(context, socket_, unique_name(socket_.handle()),
               options.follow_departures ? limit_unsent : std::function<void(int)>()),
      handshake_(options.key, options.self, peer, endpoint, random_nonce()),
      lane_(std::make_shared<ZmqOutbox::Lane>(std::move(outbox))) {
  if (zmq_connect(socket_.handle(), endpoint.c_str()) != 0)
    fail(ErrorKind::data, "cannot connect to {} at {}: {}", to_string(peer), endpoint, zmq_strerror(errno));
}

void ZmqDealer::advance() {
  // Read events first, then frames, then handle the events: a refusal explains more than the disconnect after it.
  std::optional<ZmqMonitor::Event> end;
  while (const auto event = monitor_.next()) {
    if (*event == ZmqMonitor::Event::ready) ready_ = true;
    if (*event == ZmqMonitor::Event::refused) refused_ = true;
    if (is_rejection(*event) || (*event == ZmqMonitor::Event::closed && !end)) end = event;
  }
  if (!greeted_) {
    const HandshakeFrame hello = handshake_.start();
    greeted_ = send_frame(socket_.handle(), {}, lane_, hello.header, hello.payload) == 0;
  }
  while (!open()) {
    const auto frame = receive_frame(socket_.handle(), false);
    if (!frame) break;
    const Message message = [&] {
      try {
        return to_message(*frame);
      } catch (const Error& error) {
        throw error.with_context(fmt::format("{} at {}", to_string(peer_), endpoint_));
      }
    }();
    if (const auto next = handshake_.on_frame(message.header, message.payload)) send(*next);
  }
  if (end && !open()) fail_closed(*end);
  if (end) closed_ = true;
}

short ZmqDealer::awaited_events() const { return static_cast<short>(greeted_ ? ZMQ_POLLIN : ZMQ_POLLIN | ZMQ_POLLOUT); }

std::string ZmqDealer::obstacle() const {
  if (greeted_) return "it does not answer";
  if (ready_) return "connected, but it takes nothing";
  return refused_ ? "nobody listens there" : "no connection";
}

bool ZmqDealer::closed() {
  while (const auto event = monitor_.next())
    if (*event == ZmqMonitor::Event::closed || is_rejection(*event)) closed_ = true;
  return closed_;
}

void ZmqDealer::send(const HandshakeFrame& frame) {
  if (send_frame(socket_.handle(), {}, lane_, frame.header, frame.payload) != 0) fail_closed(ZmqMonitor::Event::closed);
}

void ZmqDealer::fail_closed(ZmqMonitor::Event event) const {
  if (is_rejection(event) || (encrypt_ && !ready_))
    fail(ErrorKind::unauthorised, "{} at {} does not hold this job's key, or --encrypt is not the same on both sides",
         to_string(peer_), endpoint_);
  fail(ErrorKind::peer_lost, "{} at {} closed the connection while the link was opening", to_string(peer_), endpoint_);
}

}  // namespace psring::net
