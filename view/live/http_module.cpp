#include <algorithm>
#include <cctype>
#include <cstring>

#include <httplib.h>

#include <psring/view/live/http.h>

// The library, and TLS and compression behind it, take 60 ms to load. Therefore this file is a module of its own, which
// only the process of the live view loads.

namespace psring::view {
namespace {

/// A request in memory, and the answer to it.
class MemoryStream final : public httplib::Stream {
 public:
  explicit MemoryStream(std::string_view request) : request_(request) {}

  bool is_readable() const override { return !request_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* bytes, size_t size) override {
    const std::size_t count = std::min(size, request_.size());
    std::memcpy(bytes, request_.data(), count);
    request_.remove_prefix(count);
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* bytes, size_t size) override {
    answer_.append(bytes, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override { get_remote_ip_and_port(ip, port); }
  socket_t socket() const override { return INVALID_SOCKET; }

  std::string take() { return std::move(answer_); }

 private:
  std::string_view request_;
  std::string answer_;
};

/// Removes Range headers: no answer has parts, and the library looks at them with a regular expression that may take
/// all of the stack.
std::string without_ranges(std::string_view head) {
  constexpr std::string_view kName = "range:";
  std::string kept;
  for (std::size_t end; !head.empty(); head.remove_prefix(end)) {
    end = std::min(head.find('\n'), head.size() - 1) + 1;
    const std::string_view line = head.substr(0, end);
    const bool is_range =
        std::equal(kName.begin(), kName.end(), line.begin(), line.begin() + std::min(kName.size(), line.size()),
                   [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
    if (!is_range) kept += line;
  }
  return kept;
}

void fill(httplib::Response& response, HttpAnswer answer) {
  response.status = answer.status;
  response.set_header("Cache-Control", "no-store");
  response.set_header("Content-Security-Policy",
                      (answer.policy.empty() ? "default-src 'none'" : answer.policy) + "; frame-ancestors 'none'");
  response.set_header("Referrer-Policy", "no-referrer");
  response.set_header("X-Content-Type-Options", "nosniff");
  if (!answer.streams) {
    response.set_content(std::move(answer.body), answer.type);
    return;
  }
  response.set_content_provider(answer.type, [body = std::move(answer.body)](size_t, httplib::DataSink& sink) {
    sink.write(body.data(), body.size());
    sink.done();
    return true;
  });
}

/// The server's parser and writer, without its sockets and threads: these spend a thread on every open connection.
class Format final : public HttpFormat, private httplib::Server {
 public:
  Format() {
    svr_sock_ = 0;  // never used; without a socket the library takes itself for shut down, and writes no stream
    set_pre_routing_handler([this](const httplib::Request& from, httplib::Response& response) {
      const HttpRequest request{
          .method = from.method,
          .path = from.path,
          .token = from.get_param_value("token"),
          .authorization = from.get_header_value("Authorization"),
          .host = from.get_header_value("Host"),
          .origin = from.get_header_value("Origin"),
          .accept = from.get_header_value("Accept"),
          .has_body = from.has_header("Transfer-Encoding") ||
                      (from.has_header("Content-Length") && from.get_header_value("Content-Length") != "0")};
      fill(response, (*answer_)(request));
      return HandlerResponse::Handled;
    });
    set_expect_100_continue_handler([](const httplib::Request&, httplib::Response&) { return 417; });
  }

  std::string answer(std::string_view head, const std::function<HttpAnswer(const HttpRequest&)>& answer) override {
    answer_ = &answer;
    const std::string request = without_ranges(head);
    MemoryStream stream(request);
    bool closed = false;
    const auto set_up = [](httplib::Request& parsed) {
      parsed.headers.erase("Accept-Encoding");  // compressing costs more than the way to a browser on this host
    };
    const auto process = [&](auto& from) {
      if constexpr (requires { this->process_request(from, true, closed, set_up); })
        this->process_request(from, true, closed, set_up);
      else  // newer versions of the library also take the addresses of both ends
        this->process_request(from, "", 0, "", 0, true, closed, set_up);
    };
    process(stream);
    return stream.take();
  }

 private:
  const std::function<HttpAnswer(const HttpRequest&)>* answer_ = nullptr;
};

}  // namespace
}  // namespace psring::view

extern "C" __attribute__((visibility("default"))) psring::view::HttpFormat* psring_make_http_format() {
  return new psring::view::Format;
}
