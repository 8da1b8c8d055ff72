#include <array>
#include <utility>

#include <psring/bench/exchange/exchange.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {
namespace {

constexpr std::array<std::pair<Kind, const char*>, 5> kNames{{{Kind::shm, "shm"},
                                                              {Kind::tcp, "tcp"},
                                                              {Kind::tcp_encrypted, "tcp-encrypted"},
                                                              {Kind::raw_socket, "raw-socket"},
                                                              {Kind::bare_zmq, "cppzmq-curve"}}};

}  // namespace

std::string to_string(Kind kind) {
  for (const auto& [each, name] : kNames)
    if (each == kind) return name;
  return "?";
}

Kind parse_kind(const std::string& name) {
  for (const auto& [kind, each] : kNames)
    if (each == name) return kind;
  fail(ErrorKind::usage, "--kind: no exchange '{}'", name);
}

void serve_exchange(const ServerPlan& plan) {
  if (plan.kind == Kind::raw_socket) return serve_socket(plan);
  if (plan.kind == Kind::bare_zmq) return serve_zmq(plan);
  serve_psring(plan);
}

std::unique_ptr<Exchange> connect_exchange(Kind kind, const std::string& endpoint, const std::string& key_file,
                                           const std::vector<std::size_t>& elements) {
  if (kind == Kind::raw_socket) return connect_socket(endpoint, elements);
  if (kind == Kind::bare_zmq) return connect_zmq(endpoint, elements);
  return connect_psring(kind, endpoint, key_file, elements);
}

}  // namespace psring::bench
