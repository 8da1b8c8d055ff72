#pragma once

#include <string>
#include <utility>

namespace psring::net {

/// ZeroMQ's context, which has an I/O thread. Owned by the process; must outlive all its sockets.
class ZmqContext {
 public:
  ZmqContext();
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  void* handle() const { return handle_; }  ///< libzmq's

 private:
  void* handle_;
};

/// Owns a libzmq socket; source files include zmq.h themselves. Belongs to one thread at a time.
class ZmqSocket {
 public:
  ZmqSocket(void* context, int type);
  ~ZmqSocket();
  ZmqSocket(ZmqSocket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ZmqSocket& operator=(ZmqSocket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  void* handle() const { return handle_; }
  void set(int option, int value);
  void set(int option, const std::string& value);
  int get(int option) const;
  std::string get_text(int option) const;

 private:
  void* handle_;
};

}  // namespace psring::net
