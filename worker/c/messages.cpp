#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <psring/common/base/dtype.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/c/messages.h>

namespace psring::c {
namespace {

constexpr std::size_t kWords = sizeof(Envelope) / sizeof(std::int64_t);

std::span<std::int64_t> words(Envelope& envelope) { return {reinterpret_cast<std::int64_t*>(&envelope), kWords}; }

/// A send: its envelope lives until it has left.
class Send final : public Works {
 public:
  Send(ring::ConstVector data, const Envelope& envelope) : Works("send", data), envelope_(envelope) {}
  ring::Vector envelope() { return words(envelope_); }

 private:
  Envelope envelope_;
};

ring::Vector as_bytes(std::byte* data, std::size_t bytes) { return {data, bytes, {DType::u8}}; }

}  // namespace

bool Receive::advance() {
  const std::shared_ptr<Messages> messages = messages_.lock();
  check(messages != nullptr, "a receive outlived its group");
  messages->advance();
  return complete;
}

std::string Receive::doing() {
  return fmt::format("recv of {} {} with tag {}, waiting for {}", wanted.data.count, to_string(wanted.data.type),
                     wanted.tag, wanted.from ? fmt::format("rank {}", *wanted.from) : "any rank");
}

Messages::Messages(std::unique_ptr<ring::ProcessGroup> group) : group_(std::move(group)), sources_(group_->size()) {}

std::shared_ptr<Flight> Messages::send(ring::ConstVector data, std::size_t to, std::int64_t tag) {
  const Envelope envelope{tag, static_cast<std::int64_t>(data.count), static_cast<std::int64_t>(data.type.dtype)};
  auto flight = std::make_shared<Send>(data, envelope);
  flight->add(group_->send(flight->envelope(), to));
  if (data.count > 0) flight->add(group_->send(as_bytes(const_cast<std::byte*>(data.data), data.bytes()), to));
  return flight;
}

std::shared_ptr<Flight> Messages::receive(ring::Vector data, std::optional<std::size_t> from, std::int64_t tag) {
  if (from && (*from >= group_->size() || *from == group_->rank()))
    fail(ErrorKind::usage, "rank {} of {} receives from rank {}", group_->rank(), group_->size(), *from);
  auto receive = std::make_shared<Receive>(weak_from_this(), Receive::Wanted{data, from, tag});
  if (!take_stored(*receive)) receives_.push_back(receive);
  return receive;
}

bool Messages::take_stored(Receive& receive) {
  for (std::size_t from = 0; from < sources_.size(); ++from) {
    if (receive.wanted.from.value_or(from) != from) continue;
    std::deque<Stored>& stored = sources_[from].stored;
    const auto found = std::find_if(stored.begin(), stored.end(),
                                    [&](const Stored& each) { return each.envelope.tag == receive.wanted.tag; });
    if (found == stored.end()) continue;
    require_match(found->envelope, receive, from);
    std::copy(found->payload.begin(), found->payload.end(), receive.wanted.data.data);
    stored.erase(found);
    receive.source = from;
    return receive.complete = true;
  }
  return false;
}

bool Messages::is_wanted(std::size_t from) const {
  return std::any_of(receives_.begin(), receives_.end(),
                     [&](const auto& receive) { return receive->wanted.from.value_or(from) == from; });
}

void Messages::advance() {
  for (std::size_t from = 0; from < sources_.size(); ++from)
    while (from != group_->rank() && advance(from)) {
    }
}

/// Returns true if anything went on.
bool Messages::advance(std::size_t from) {
  Source& source = sources_[from];
  if (!source.listens) {
    if (!is_wanted(from)) return false;
    source.work = group_->recv(words(source.envelope), from);
    source.listens = true;
  }
  if (!source.work.done()) return false;
  if (source.has_envelope)
    take_payload(from);
  else
    take_envelope(from);
  return true;
}

std::deque<std::shared_ptr<Receive>>::iterator Messages::find_wanted(std::int64_t tag, std::size_t from) {
  return std::find_if(receives_.begin(), receives_.end(), [&](const auto& receive) {
    return receive->wanted.tag == tag && receive->wanted.from.value_or(from) == from;
  });
}

void Messages::take_envelope(std::size_t from) {
  Source& source = sources_[from];
  const Envelope& envelope = source.envelope;
  const auto wanted = find_wanted(envelope.tag, from);
  source.has_envelope = true;
  source.work = {};
  if (wanted != receives_.end()) {
    source.into = *wanted;
    receives_.erase(wanted);
    require_match(envelope, *source.into, from);
    const ring::Vector& data = source.into->wanted.data;
    if (data.count > 0) source.work = group_->recv(as_bytes(data.data, data.bytes()), from);
    return;
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (envelope.count < 0 || envelope.count > kMost || envelope.type < 0 || envelope.type >= kDTypes)
    fail(ErrorKind::protocol, "rank {} announces a message of {} elements of type {}", from, envelope.count,
         envelope.type);
  source.storing.envelope = envelope;
  source.storing.payload.resize(static_cast<std::size_t>(envelope.count) *
                                size_bytes(static_cast<DType>(envelope.type)));
  if (!source.storing.payload.empty())
    source.work = group_->recv(as_bytes(source.storing.payload.data(), source.storing.payload.size()), from);
}

void Messages::take_payload(std::size_t from) {
  Source& source = sources_[from];
  source.work = {};
  source.has_envelope = source.listens = false;
  if (source.into != nullptr) {
    source.into->source = from;
    source.into->complete = true;
    source.into.reset();
    return;
  }
  source.stored.push_back(std::exchange(source.storing, {}));
  // A receive may have been called while the payload was on its way.
  const auto wanted = find_wanted(source.stored.back().envelope.tag, from);
  if (wanted == receives_.end()) return;
  const std::shared_ptr<Receive> receive = *wanted;
  receives_.erase(wanted);
  take_stored(*receive);
}

void Messages::require_match(const Envelope& envelope, const Receive& receive, std::size_t from) const {
  const auto type = static_cast<std::int64_t>(receive.wanted.data.type.dtype);
  if (envelope.type == type && envelope.count == static_cast<std::int64_t>(receive.wanted.data.count)) return;
  const bool known = envelope.type >= 0 && envelope.type < kDTypes;
  fail(ErrorKind::usage, "rank {} sent {} {} with tag {}; rank {} receives {} {}", from, envelope.count,
       known ? to_string(ring::ElementType{static_cast<DType>(envelope.type)}) : "?", envelope.tag, group_->rank(),
       receive.wanted.data.count, to_string(receive.wanted.data.type));
}

}  // namespace psring::c
