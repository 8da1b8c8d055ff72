#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace psring::bench {

/// Ways in which a worker and a server exchange vectors: psring's ways and their baselines.
enum class Kind {
  shm,            ///< psring through shared memory
  tcp,            ///< psring over loopback TCP: authenticated, not encrypted
  tcp_encrypted,  ///< psring under CURVE
  raw_socket,     ///< two blocking sockets, one message in each direction at a time
  bare_zmq,       ///< ZeroMQ's DEALER and ROUTER under CURVE, with plain messages of 1 MiB
};

std::string to_string(Kind kind);
/// Throws usage for an unknown name.
Kind parse_kind(const std::string& name);

/// The update rule of every server in a benchmark, and the initial parameters.
inline constexpr float kLearningRate = 0.125F;
inline constexpr float kStart = 1.0F;

/// A worker's side of the exchange with one server, which holds a vector ("unit") of each size. A push subtracts
/// kLearningRate times the gradient from the server's parameters.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual std::span<float> gradient(std::size_t unit) = 0;
  virtual std::span<const float> parameters(std::size_t unit) = 0;  ///< as last pulled
  /// Pushes the gradient, waits until the server has taken it, pulls the parameters and waits for them.
  virtual void push_then_pull(std::size_t unit) = 0;
  /// The same in one round trip.
  virtual void push_pull(std::size_t unit) = 0;
};

/// The arguments of a server process.
struct ServerPlan {
  Kind kind = Kind::shm;
  std::vector<std::size_t> elements;  ///< of each unit; psring's servers get them from the worker
  std::string key_file;
  std::size_t threads = 1;
  double lr = kLearningRate;
  int endpoint_fd = -1;  ///< descriptor that receives one line: the server's endpoint
};

/// Runs a server until it is terminated or its worker hangs up.
void serve_exchange(const ServerPlan& plan);
/// Connects to the server at `endpoint`. Throws peer_lost, timeout, unauthorised.
std::unique_ptr<Exchange> connect_exchange(Kind kind, const std::string& endpoint, const std::string& key_file,
                                           const std::vector<std::size_t>& elements);

// Each pair is implemented in a source file of its own.
void serve_psring(const ServerPlan& plan);
void serve_socket(const ServerPlan& plan);
void serve_zmq(const ServerPlan& plan);
std::unique_ptr<Exchange> connect_psring(Kind kind, const std::string& endpoint, const std::string& key_file,
                                         const std::vector<std::size_t>& elements);
std::unique_ptr<Exchange> connect_socket(const std::string& endpoint, const std::vector<std::size_t>& elements);
std::unique_ptr<Exchange> connect_zmq(const std::string& endpoint, const std::vector<std::size_t>& elements);

}  // namespace psring::bench
