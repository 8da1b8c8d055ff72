#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <psring/common/base/clock.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/poll.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/view/live/access.h>
#include <psring/view/live/http.h>
#include <psring/view/live/open_metrics.h>
#include <psring/view/live/watch.h>
#include <psring/view/page.h>

namespace psring::view {
namespace {

using std::chrono::seconds;

constexpr Nanoseconds kRequestTime = seconds(2);  ///< from the connection to the end of the request
constexpr Nanoseconds kStuckTime = seconds(10);   ///< without a byte that the other end takes
constexpr Nanoseconds kLingerTime = seconds(2);   ///< for the rest of a request that was refused
constexpr int kSendBuffer = 128 << 10;
constexpr std::string_view kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// The connections of the live view, all in one thread: idle and slow ones cost a descriptor and bounded memory, and
/// delay nobody. If there are too many, the oldest without a request is closed.
class Connections {
 public:
  struct Answer {
    std::string bytes;
    bool streams = false;  ///< the connection stays open, and gets events
  };
  /// Answers a request by its head, which ends with an empty line.
  using Respond = std::function<Answer(std::string_view head)>;
  using Event = std::shared_ptr<const std::string>;

  static constexpr std::size_t kMost = 128;
  static constexpr std::size_t kMostStreams = 16;
  static constexpr std::size_t kMostHeadBytes = 16384;

  /// `listener`: a listening, non-blocking socket. REQUIRES: the clock outlives the object.
  Connections(Fd listener, Respond respond, const Clock& clock)
      : listener_(std::move(listener)), respond_(std::move(respond)), clock_(clock) {}

  std::string endpoint() const { return net::local_endpoint(listener_); }
  /// Moves bytes until `deadline`.
  void run(Moment deadline) {
    do {
      Moment wake = deadline;
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
      for (const Connection& connection : connections_) {
        wake = std::min(wake, connection.deadline);
        const short wanted = static_cast<short>(POLLIN | (connection.has_output() ? POLLOUT : 0));
        polled.push_back({connection.socket.get(), wanted, 0});
      }
      if (::poll(polled.data(), polled.size(), poll_milliseconds(clock_.now(), wake)) > 0) {
        auto at = polled.begin() + 1;
        for (Connection& connection : connections_) {
          const short events = (at++)->revents;
          if ((events & POLLOUT) != 0) write(connection);
          if ((events & ~POLLOUT) != 0) read(connection);
        }
        if (polled[0].revents != 0) accept_all();
      }
      std::erase_if(connections_, [&](const Connection& connection) { return is_over(connection); });
    } while (clock_.now() < deadline);
  }

  /// Sends an event to each stream. A stream that has not taken the event before gets only the newest one next.
  void publish(Event event) {
    for (Connection& connection : connections_) {
      if (connection.phase != Connection::Phase::streaming) continue;
      if (connection.has_output()) {
        connection.next = event;
        continue;
      }
      connection.sending = event;
      connection.deadline = clock_.now() + kStuckTime;
      write(connection);
    }
  }

  std::size_t streams() const {
    return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(), [](const Connection& c) {
      return c.phase == Connection::Phase::streaming;
    }));
  }

  /// Has every connection sent all that it has to?
  bool is_drained() const {
    return std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.has_output(); });
  }

 private:
  struct Connection {
    enum class Phase { reading, writing, streaming, lingering, closed };

    Fd socket;
    Phase phase = Phase::reading;
    Moment deadline;
    std::string head;
    Event sending;  ///< bytes that are on their way
    std::size_t sent = 0;
    Event next;  ///< the newest event, if `sending` was older

    bool has_output() const { return sending != nullptr; }
  };

  void accept_all() {
    for (int i = 0; i < 256; ++i) {
      std::optional<Fd> socket = net::accept_tcp(listener_);
      if (!socket) return;
      make_room();
      ::setsockopt(socket->get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
      Connection& connection = connections_.emplace_back();
      connection.socket = std::move(*socket);
      connection.deadline = clock_.now() + kRequestTime;
      read(connection);
    }
  }

  void make_room() {
    std::erase_if(connections_, [&](const Connection& connection) { return is_over(connection); });
    if (connections_.size() < kMost) return;
    auto victim = std::find_if(connections_.begin(), connections_.end(),
                               [](const Connection& c) { return c.phase == Connection::Phase::lingering; });
    if (victim == connections_.end())
      victim = std::find_if(connections_.begin(), connections_.end(),
                            [](const Connection& c) { return c.phase == Connection::Phase::reading; });
    if (victim == connections_.end())
      victim = std::find_if(connections_.begin(), connections_.end(),
                            [](const Connection& c) { return c.phase == Connection::Phase::writing; });
    if (victim != connections_.end()) connections_.erase(victim);
  }

  void read(Connection& connection) {
    std::array<char, 16384> buffer;
    for (int i = 0; i < 16; ++i) {
      const ssize_t got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        connection.phase = Connection::Phase::closed;
        return;
      }
      if (connection.phase != Connection::Phase::reading) continue;  // nothing more is wanted
      connection.head.append(buffer.data(), static_cast<std::size_t>(got));
      answer(connection);
    }
  }

  void answer(Connection& connection) {
    const std::size_t end = connection.head.find("\r\n\r\n");
    Answer answer;
    if (end != std::string::npos && end <= kMostHeadBytes)
      answer = respond_(std::string_view(connection.head).substr(0, end + 4));
    else if (connection.head.size() > kMostHeadBytes)
      answer.bytes = kTooLong;
    else
      return;
    connection.head = {};
    connection.phase = answer.streams ? Connection::Phase::streaming : Connection::Phase::writing;
    connection.sending = std::make_shared<const std::string>(std::move(answer.bytes));
    connection.deadline = clock_.now() + kStuckTime;
    write(connection);
  }

  void write(Connection& connection) {
    while (connection.has_output()) {
      const std::string_view left = std::string_view(*connection.sending).substr(connection.sent);
      const ssize_t sent = ::send(connection.socket.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent < 0) {
        connection.phase = Connection::Phase::closed;
        return;
      }
      connection.deadline = clock_.now() + kStuckTime;
      connection.sent += static_cast<std::size_t>(sent);
      if (connection.sent < connection.sending->size()) continue;
      connection.sent = 0;
      connection.sending = std::exchange(connection.next, nullptr);
    }
    if (connection.phase == Connection::Phase::streaming) connection.deadline = kNever;
    if (connection.phase != Connection::Phase::writing) return;
    // A socket that is closed before it has read all loses the answer on its way.
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.phase = Connection::Phase::lingering;
    connection.deadline = clock_.now() + kLingerTime;
  }

  bool is_over(const Connection& connection) const {
    return connection.phase == Connection::Phase::closed || clock_.now() >= connection.deadline;
  }

  const Fd listener_;
  const Respond respond_;
  const Clock& clock_;
  std::list<Connection> connections_;  ///< the oldest first
};

constexpr Nanoseconds kPeriod = std::chrono::seconds(1);
constexpr Nanoseconds kFarewell = std::chrono::seconds(3);  ///< the longest wait for slow viewers, at the end

Fd listen_at(const std::string& text) {
  const net::Endpoint endpoint = net::resolve_endpoint("--listen", text, 0);
  try {
    return net::listen_tcp(endpoint.host, endpoint.port);
  } catch (const Error& error) {
    fail(error.kind(), "--listen {}: {}", text, error.what());
  }
}

std::string event_of(const std::string& state) { return "event: state\ndata: " + state + "\n\n"; }

}  // namespace

class Watch::Impl {
 public:
  Impl(Options options, const Clock& clock)
      : clock_(clock),
        http_(load_http()),
        files_(std::move(options.folder), std::move(options.tokens)),
        page_(live_page()),
        policy_(content_policy(page_)),
        connections_(
            listen_at(options.listen), [this](std::string_view head) { return respond(head); }, clock) {
    url_ = fmt::format("http://{}/?token={}", connections_.endpoint(), access_.token());
  }

  const std::string& url() const { return url_; }

  void run(bool until_end) {
    for (;;) {
      const Moment begin = clock_.now();
      const RunFiles::Progress progress = files_.look(begin);
      const bool is_current = progress != RunFiles::Progress::behind;
      const bool has_ended = files_.state().end().has_value();
      // While a run is in progress the state changes with every second: for how long has it waited?
      if (is_current && connections_.streams() > 0 && (progress == RunFiles::Progress::changed || !has_ended))
        connections_.publish(std::make_shared<const std::string>(event_of(files_.state().json(begin))));
      if (until_end && has_ended && is_current) return say_farewell();
      connections_.run(is_current ? begin + kPeriod : clock_.now());
    }
  }

 private:
  void say_farewell() {
    const Moment deadline = clock_.now() + kFarewell;
    do {
      connections_.run(clock_.now() + std::chrono::milliseconds(20));
    } while (!connections_.is_drained() && clock_.now() < deadline);
  }

  Connections::Answer respond(std::string_view head) {
    Connections::Answer answer;
    answer.bytes = http_->answer(head, [&](const HttpRequest& request) {
      HttpAnswer found = answer_to(request);
      answer.streams = found.streams;
      return found;
    });
    return answer;
  }

  HttpAnswer answer_to(const HttpRequest& request) {
    if (const std::optional<int> status = access_.refuse(request))
      return {.status = *status, .type = "text/plain", .body = "refused\n"};
    const LiveState& state = files_.state();
    if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = page_, .policy = policy_};
    if (request.path == "/state") return {.type = "application/json", .body = state.json(clock_.now())};
    if (request.path == "/metrics") {
      const MetricsFormat format = metrics_format(request.accept);
      return {.type = content_type(format), .body = metrics(state.figures(clock_.now()), format)};
    }
    if (request.path != "/events") return {.status = 404, .type = "text/plain", .body = "no such page\n"};
    if (connections_.streams() >= Connections::kMostStreams)
      return {.status = 503, .type = "text/plain", .body = "too many viewers\n"};
    return {.type = "text/event-stream", .body = event_of(state.json(clock_.now())), .streams = true};
  }

  const Clock& clock_;
  const std::unique_ptr<HttpFormat> http_;
  const Access access_;
  RunFiles files_;
  const std::string page_;
  const std::string policy_;
  Connections connections_;
  std::string url_;
};

Watch::Watch(Options options, const Clock& clock) : impl_(std::make_unique<Impl>(std::move(options), clock)) {}
Watch::~Watch() = default;
std::string Watch::url() const { return impl_->url(); }
void Watch::run(bool until_end) { impl_->run(until_end); }

}  // namespace psring::view
