#include <algorithm>
#include <utility>

#include <psring/common/net/frame.h>
#include <psring/ring/call.h>
#include <psring/ring/link/endpoint.h>

namespace psring::ring {
namespace {

// A call travels in every frame of its operation, so that a rank that called another operation finds out.

net::FrameType frame_type(Collective collective) {
  using enum net::FrameType;
  static constexpr net::FrameType kTypes[] = {all_reduce, reduce_scatter, all_gather, broadcast,
                                              barrier,    message,        message};  // in the order of Collective
  return kTypes[static_cast<std::size_t>(collective)];
}

/// Writes a call into a frame's header: type, dtype, micro (reduction and located), unit (root), version (count) and
/// dest (fingerprint).
void put_call(const Call& call, net::FrameHeader& header) {
  header.type = frame_type(call.collective);
  header.dtype = call.type.dtype;
  header.micro = static_cast<std::uint32_t>(call.op) | (call.type.located ? 1U << 8 : 0U);
  header.unit = call.root;
  header.version = call.count;
  header.dest = call.fingerprint;
}

/// The call that a header holds. A frame of a message holds the sender's call.
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

/// The call that the other side of an operation puts into its frames.
Call sent_call(Call call) {
  if (call.collective == Collective::recv) call.collective = Collective::send;
  return call;
}

}  // namespace

LinkEndpoint::LinkEndpoint(std::shared_ptr<LinkEngine> engine, std::uint32_t id, std::vector<std::uint32_t> members,
                           std::vector<std::size_t> names, std::size_t rank)
    : engine_(std::move(engine)),
      id_(id),
      members_(std::move(members)),
      names_(std::move(names)),
      rank_(rank),
      sent_messages_(members_.size(), 0),
      received_messages_(members_.size(), 0) {
  engine_->locked([&] { engine_->add(id_, *this); });
}

LinkEndpoint::~LinkEndpoint() {
  engine_->locked([&] { engine_->remove(id_); });
}

Work LinkEndpoint::start(const Request& request, Plan plan) {
  return engine_->locked([&] {
    LinkFailure& failure = engine_->failure();
    if (failure.any())
      failure.rethrow_and_tell(
          fmt::format("[ring] rank {}: before {}", name(rank_), to_string(request.call.collective)));
    return launch(std::make_shared<LinkOperation>(*this, next_number(request), request, std::move(plan)));
  });
}

Moved LinkEndpoint::moved() const {
  return engine_->locked([&] { return moved_; });
}

std::uint64_t LinkEndpoint::next_number(const Request& request) {
  switch (request.call.collective) {
    case Collective::send:
      return sent_messages_[request.peer]++;
    case Collective::recv:
      return received_messages_[request.peer]++;
    default:
      return collectives_++;
  }
}

Work LinkEndpoint::launch(std::shared_ptr<LinkOperation> operation) {
  operations_.push_back(operation);
  for (net::Message& message : std::exchange(early_, {})) arrived(std::move(message));
  try {
    operation->step();
  } catch (const Error& error) {
    LinkFailure& failure = engine_->failure();
    if (failure.told()) throw;
    failure.end(error.with_context(operation->doing()));
  }
  return Work(std::move(operation));
}

net::FrameHeader LinkEndpoint::header_of(const LinkOperation& operation) const {
  net::FrameHeader header;
  put_call(operation.call(), header);
  if (operation.said().control) header.flags |= net::FrameHeader::kStartUp;
  header.group = id_;
  header.step = operation.number();
  return header;
}

std::uint64_t LinkEndpoint::send_frame(const LinkOperation& operation, std::size_t to, Range range,
                                       std::span<const std::byte> payload) {
  net::FrameHeader header = header_of(operation);
  header.set_range(range);
  moved_.sent += payload.size();
  return engine_->send(peer(to), header, payload);
}

void LinkEndpoint::probe(const LinkOperation& operation) {
  const std::size_t to = operation.missing();
  if (to == rank_ || operation.call().collective >= Collective::send) return;
  net::FrameHeader header = header_of(operation);
  header.flags |= net::FrameHeader::kProbe;
  engine_->transport().send(peer(to), header, {});
}

std::size_t LinkEndpoint::rank_of(net::Peer peer) const {
  const auto found = std::find(members_.begin(), members_.end(), peer.rank);
  if (peer.role != net::Role::worker || found == members_.end())
    fail(ErrorKind::protocol, "[ring] {} sent a frame of a group that it is not in", to_string(peer));
  return static_cast<std::size_t>(found - members_.begin());
}

/// The operation that a frame belongs to; null if this rank has not called it yet.
LinkOperation* LinkEndpoint::find(const net::FrameHeader& header, std::size_t from) const {
  const bool message = header.type == net::FrameType::message;
  for (const auto& operation : operations_) {
    const Call& call = operation->call();
    if (call.collective == Collective::send || operation->number() != header.step) continue;
    if (message != (call.collective == Collective::recv)) continue;
    if (message && operation->missing() != from) continue;
    return operation.get();
  }
  return nullptr;
}

void LinkEndpoint::check_call(const LinkOperation& operation, std::size_t from, const net::FrameHeader& header) {
  const Call theirs = call_of(header);
  const Call ours = sent_call(operation.call());
  if (theirs == ours) return;
  engine_->failure().end(mismatch(operation.said().number, name(rank_), ours, name(from), theirs));
}

void LinkEndpoint::arrived(net::Message message) {
  const std::size_t from = rank_of(message.header.sender());
  LinkOperation* operation = find(message.header, from);
  if ((message.header.flags & net::FrameHeader::kProbe) != 0) {
    if (operation != nullptr) check_call(*operation, from, message.header);
    return;
  }
  if (operation == nullptr) {
    early_.push_back(std::move(message));
    return;
  }
  check_call(*operation, from, message.header);
  moved_.received += message.payload.size();
  operation->take(from, std::move(message));
  if (operation->step()) step();
}

std::span<std::byte> LinkEndpoint::place(const net::FrameHeader& header) {
  if (header.payload_bytes == 0) return {};
  const auto member = std::find(members_.begin(), members_.end(), header.sender_rank);
  if (member == members_.end()) return {};
  const auto from = static_cast<std::size_t>(member - members_.begin());
  const LinkOperation* operation = find(header, from);
  if (operation == nullptr || call_of(header) != sent_call(operation->call())) return {};
  const std::span<std::byte> place = operation->place(from, header.range());
  return place.size() == header.payload_bytes ? place : std::span<std::byte>();
}

void LinkEndpoint::step() {
  for (const auto& operation : operations_) operation->step();
  std::erase_if(operations_, [](const auto& operation) { return operation->finished(); });
}

}  // namespace psring::ring
