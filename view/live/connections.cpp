#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <psring/common/base/system/poll.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/view/live/connections.h>

namespace psring::view {
namespace {

using std::chrono::seconds;

constexpr Nanoseconds kRequestTime = seconds(2);  ///< from the connection to the end of the request
constexpr Nanoseconds kStuckTime = seconds(10);   ///< without a byte that the other end takes
constexpr Nanoseconds kLingerTime = seconds(2);   ///< for the rest of a request that was refused
constexpr int kSendBuffer = 128 << 10;
constexpr std::string_view kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

}  // namespace

struct Connections::Connection {
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

Connections::Connections(Fd listener, Respond respond, const Clock& clock)
    : listener_(std::move(listener)), respond_(std::move(respond)), clock_(clock) {}
Connections::~Connections() = default;

std::string Connections::endpoint() const { return net::local_endpoint(listener_); }

void Connections::run(Moment deadline) {
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

bool Connections::is_over(const Connection& connection) const {
  return connection.phase == Connection::Phase::closed || clock_.now() >= connection.deadline;
}

void Connections::accept_all() {
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

void Connections::make_room() {
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

void Connections::read(Connection& connection) {
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

void Connections::answer(Connection& connection) {
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

void Connections::write(Connection& connection) {
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

void Connections::publish(Event event) {
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

std::size_t Connections::streams() const {
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(), [](const Connection& c) {
    return c.phase == Connection::Phase::streaming;
  }));
}

bool Connections::is_drained() const {
  return std::none_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.has_output(); });
}

}  // namespace psring::view
