#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/address.h>
#include <psring/common/net/tcp/socket.h>
#include <psring/view/live/access.h>
#include <psring/view/live/connections.h>
#include <psring/view/live/http.h>
#include <psring/view/live/open_metrics.h>
#include <psring/view/live/watch.h>
#include <psring/view/page.h>

namespace psring::view {
namespace {

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
