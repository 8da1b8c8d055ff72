#include <algorithm>
#include <cerrno>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/net/crowd.h>
#include <psring/common/net/tcp/listener.h>
#include <psring/common/net/tcp/socket.h>

namespace psring::net {
namespace {

/// The most sockets whose clients have not proved the key: a link of a large job has several (--streams).

bool unproved(const TcpStranger& stranger) { return !stranger.proved(); }

/// Returns true if the socket is a stream of this client's link.
bool belongs(const TcpStranger& stranger, const Identity& client, const TcpPart& part) {
  return stranger.proved() && stranger.client() == client && stranger.part().mark == part.mark;
}

}  // namespace

TcpListener::TcpListener(const TcpOptions& options, MakeStream make_stream)
    : options_(options), make_stream_(std::move(make_stream)) {}

std::string TcpListener::listen(const std::string& host, std::uint16_t port) {
  check(!socket_, "a channel listens once");
  socket_ = listen_tcp(host, port);
  return endpoint();
}

std::string TcpListener::endpoint() const { return local_endpoint(socket_); }

std::vector<TcpListener::Opened> TcpListener::serve(const Objection& objection) {
  if (knocked_) accept();
  const TcpStranger::Objection object = [&](const TcpStranger& candidate) {
    const std::string why = objection(candidate.client());
    return why.empty() && twice(candidate) ? "this stream of the link is open already" : why;
  };
  std::vector<std::pair<Identity, TcpPart>> proved;
  for (auto at = strangers_.begin(); at != strangers_.end();) {
    // A proved stream waits for the other streams of its link, and is not read until then.
    if (at->proved()) {
      ++at;
    } else if (!at->advance(object)) {
      count_refusal(options_.refusals, at->wrong_key() ? Refusal::wrong_key : Refusal::unfinished);
      at = strangers_.erase(at);
    } else {
      if (at->proved()) proved.emplace_back(at->client(), at->part());
      ++at;
    }
  }
  return take_complete(proved);
}

void TcpListener::accept() {
  crowded_ = false;
  for (int i = 0; i < kAcceptsAtATime; ++i) {
    std::optional<Fd> socket = accept_tcp(socket_);
    if (!socket) {
      // If descriptors have run out, the waiting clients are accepted by a later call.
      knocked_ = errno != EAGAIN && errno != EWOULDBLOCK;
      return;
    }
    admit(std::move(*socket));
  }
  crowded_ = true;
}

void TcpListener::admit(Fd socket) {
  if (std::count_if(strangers_.begin(), strangers_.end(), unproved) >= static_cast<std::ptrdiff_t>(kMostStrangers)) {
    strangers_.erase(most_crowding(strangers_, [](const TcpStranger& stranger) {
      return unproved(stranger) ? std::optional(origin_of(stranger.where())) : std::nullopt;
    }));
    count_refusal(options_.refusals, Refusal::unfinished);
  }
  const std::string where = remote_endpoint(socket);
  try {
    strangers_.emplace_back(options_.key, options_.self, options_.encrypt, where,
                            SystemClock().now() + options_.handshake_timeout, make_stream_(std::move(socket)));
  } catch (const Error&) {  // epoll cannot watch the socket: drop the client, and keep the process
  }
}

bool TcpListener::twice(const TcpStranger& candidate) const {
  const TcpPart& part = candidate.part();
  return std::any_of(strangers_.begin(), strangers_.end(), [&](const TcpStranger& other) {
    return &other != &candidate && belongs(other, candidate.client(), part) &&
           (other.part().number == part.number || other.part().streams != part.streams);
  });
}

std::vector<TcpListener::Opened> TcpListener::take_complete(const std::vector<std::pair<Identity, TcpPart>>& proved) {
  std::vector<Opened> complete;
  for (const auto& [who, what] : proved) {
    const auto of_link = [client = who, part = what](const TcpStranger& s) { return belongs(s, client, part); };
    if (std::cmp_not_equal(std::count_if(strangers_.begin(), strangers_.end(), of_link), what.streams)) continue;
    Opened& opened = complete.emplace_back(Opened{who, "", {}});
    opened.streams.resize(what.streams);
    for (TcpStranger& stranger : strangers_) {
      if (!of_link(stranger)) continue;
      if (stranger.part().number == 0) opened.where = stranger.where();
      opened.streams[stranger.part().number] = stranger.take_stream();
    }
    std::erase_if(strangers_, of_link);
  }
  return complete;
}

void TcpListener::expire(Moment now) {
  const std::size_t late =
      std::erase_if(strangers_, [&](const TcpStranger& stranger) { return stranger.deadline() <= now; });
  count_refusal(options_.refusals, Refusal::unfinished, late);
}

}  // namespace psring::net
