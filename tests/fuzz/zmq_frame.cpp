// Fuzzes the messages that a ROUTER or DEALER receives: any number of parts of any size.
#include <vector>

#include <zmq.h>

#include <psring/common/net/zmq/frame.h>
#include <psring/tests/fuzz/frames.h>

using namespace psring;
using namespace psring::net;

namespace {

/// Two ends in one process.
struct Ends {
  Ends() {
    static const char* const kName = "inproc://fuzz";
    const bool linked = zmq_bind(in.handle(), kName) == 0 && zmq_connect(out.handle(), kName) == 0;
    fuzz::require(linked, "two sockets");
  }
  ZmqContext context;
  ZmqSocket in{context.handle(), ZMQ_PAIR};
  ZmqSocket out{context.handle(), ZMQ_PAIR};
};

}  // namespace

void psring::fuzz::run(Input in) {
  static const Ends ends;
  const bool routed = in.below(2) == 1;
  std::vector<std::vector<std::byte>> parts;
  for (std::size_t count = 1 + in.below(4); count > 0; --count) {
    std::vector<std::byte>& part = parts.emplace_back();
    if (in.below(2) == 1) {
      FrameHeader header = read_header(in);
      if (in.below(2) == 1) header.payload_bytes = in.byte();
      const auto bytes = encode(header);
      part.assign(bytes.begin(), bytes.end());
    }
    const auto more = in.take(in.byte());
    part.insert(part.end(), more.begin(), more.end());
  }
  for (const auto& part : parts)
    zmq_send(ends.out.handle(), part.data(), part.size(), ZMQ_DONTWAIT | (&part == &parts.back() ? 0 : ZMQ_SNDMORE));
  const auto frame = receive_frame(ends.in.handle(), routed);
  require(frame.has_value(), "a frame that was sent");
  require(!receive_frame(ends.in.handle(), routed), "all its parts are taken");
  refuses(ErrorKind::protocol, [&] {
    const Message message = to_message(*frame);
    require(message.payload.size() == message.header.payload_bytes, "the payload that was announced");
    require(reinterpret_cast<std::uintptr_t>(message.payload.data()) % size_bytes(message.header.dtype) == 0,
            "elements on their boundaries");
    const std::vector<std::byte> read(message.payload.begin(), message.payload.end());
    require(read.size() == message.payload.size(), "bytes that can be read");
  });
}
