#include <algorithm>

#include <psring/ring/link/frames.h>

namespace psring::ring {
namespace {

net::FrameType frame_type(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return net::FrameType::all_reduce;
    case Collective::reduce_scatter:
      return net::FrameType::reduce_scatter;
    case Collective::all_gather:
      return net::FrameType::all_gather;
    case Collective::broadcast:
      return net::FrameType::broadcast;
    case Collective::barrier:
      return net::FrameType::barrier;
    case Collective::send:
    case Collective::recv:
      return net::FrameType::message;
  }
  return net::FrameType::failed;
}

}  // namespace

void put_call(const Call& call, net::FrameHeader& header) {
  header.type = frame_type(call.collective);
  header.dtype = call.type.dtype;
  header.micro = static_cast<std::uint32_t>(call.op) | (call.type.located ? 1U << 8 : 0U);
  header.unit = call.root;
  header.version = call.count;
  header.dest = call.fingerprint;
}

Call call_of(const net::FrameHeader& header) {
  Call call;
  for (const Collective each : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::broadcast, Collective::barrier, Collective::send})
    if (frame_type(each) == header.type) call.collective = each;
  call.op = static_cast<ReduceOp::Kind>(std::min<std::uint32_t>(header.micro & 0xff, 13));
  call.type = {header.dtype, (header.micro >> 8 & 1) != 0};
  call.root = header.unit;
  call.count = header.version;
  call.fingerprint = header.dest;
  return call;
}

Call sent_call(Call call) {
  if (call.collective == Collective::recv) call.collective = Collective::send;
  return call;
}

}  // namespace psring::ring
