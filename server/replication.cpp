#include <algorithm>
#include <iterator>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/server/replication.h>

namespace psring::server {

using net::FrameHeader;
using net::FrameType;
using net::Message;
using net::Outgoing;
using net::Role;

namespace {

/// True for frames that change a shard's state.
bool is_passed_on(FrameType type) {
  using enum FrameType;
  static constexpr FrameType kTypes[] = {layout, initial, push, push_pull, rows_pull, rows_push, verdict, leave};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

bool has_gradient(FrameType type) {
  return type == FrameType::push || type == FrameType::push_pull || type == FrameType::rows_push;
}

/// The type of the frame that passes on a frame of this type: gradients, and the keys of their rows, are tensors.
FrameType passed_on_as(FrameType type) {
  return has_gradient(type) || type == FrameType::rows_pull ? FrameType::replicate : FrameType::state;
}

}  // namespace

void Replication::begin(std::vector<Outgoing>& out) {
  begun_ = true;
  const std::size_t before = out.size();
  shard_.snapshot(follower_, out);
  snapshot_ = sent_ = out.size() - before;
}

void Replication::on_message(Message message, std::vector<Outgoing>& out) {
  if (message.header.sender() == follower_ && message.header.type == FrameType::replicated)
    return on_replicated(message.header.version, out);
  if (!begun_ || acknowledged_ < snapshot_)
    waiting_.push_back(std::move(message));
  else
    handle(std::move(message), out);
}

void Replication::on_replicated(std::uint64_t frames, std::vector<Outgoing>& out) {
  if (!begun_ && frames == 0) return begin(out);
  if (frames <= acknowledged_ || frames > sent_)
    fail(ErrorKind::protocol, "{} acknowledges {} frames of {}, and {} before", to_string(follower_), frames, sent_,
         acknowledged_);
  acknowledged_ = frames;
  for (; !held_answers_.empty() && held_answers_.front().first <= acknowledged_; held_answers_.pop_front())
    out.push_back(std::move(held_answers_.front().second));
  while (!kept_payloads_.empty() && kept_payloads_.front().first <= acknowledged_) kept_payloads_.pop_front();
  for (; acknowledged_ >= snapshot_ && !waiting_.empty(); waiting_.pop_front())
    handle(std::move(waiting_.front()), out);
}

void Replication::handle(Message message, std::vector<Outgoing>& out) {
  const bool only_read = message.header.type == FrameType::rows_pull && net::only_reads(message.header);
  if (is_passed_on(message.header.type) && !only_read) pass_on(message, out);
  std::vector<Outgoing> replies;
  shard_.on_message(std::move(message), replies);
  hold(std::move(replies), out);
}

/// The payload is still the sender's: the sender does not overwrite it before the answer has left, and the answer waits
/// for the follower.
void Replication::pass_on(const Message& message, std::vector<Outgoing>& out) {
  FrameHeader header = message.header;
  header.type = passed_on_as(header.type);
  header.relayed = message.header.type;
  header.group = message.header.sender_rank;
  header.dest = 0;
  out.push_back({follower_, header, message.payload, message.holder});
  kept_payloads_.emplace_back(++sent_, message.holder);
}

void Replication::saved(std::vector<Outgoing>& out) {
  std::vector<Outgoing> replies;
  shard_.saved(replies);
  hold(std::move(replies), out);
}

void Replication::hold(std::vector<Outgoing> replies, std::vector<Outgoing>& out) {
  for (Outgoing& reply : replies) {
    if (acknowledged_ == sent_)
      out.push_back(std::move(reply));
    else
      held_answers_.emplace_back(sent_, std::move(reply));
  }
}

void Follower::on_message(Message message, std::vector<Outgoing>& out) {
  const FrameHeader header = message.header;
  if (header.sender() != primary_ || (header.type != FrameType::replicate && header.type != FrameType::state))
    fail(ErrorKind::protocol, "a {} frame of {}, {} is followed", to_string(header.type), to_string(header.sender()),
         to_string(primary_));
  if (header.relayed == FrameType{}) {
    whole_ = shard_.restore(message);
  } else {
    if (!is_passed_on(header.relayed) || passed_on_as(header.relayed) != header.type)
      fail(ErrorKind::protocol, "{} passes on a {} frame", to_string(primary_), to_string(header.relayed));
    FrameHeader& passed_on = message.header;
    passed_on.type = header.relayed;
    passed_on.sender_role = header.relayed == FrameType::verdict ? Role::server : Role::worker;
    passed_on.sender_rank = header.group;
    // The acknowledgement below lets the sender overwrite the gradient.
    if (has_gradient(header.relayed)) shard_.keep(message);
    message.reply_space = {};
    message.reply_holder = nullptr;
    std::vector<Outgoing> dropped;
    shard_.on_message(std::move(message), dropped);
  }
  ++taken_;
  acknowledge(out);
}

void Follower::acknowledge(std::vector<Outgoing>& out) const {
  FrameHeader answer;
  answer.type = FrameType::replicated;
  answer.version = taken_;
  out.push_back({primary_, answer, {}});
}

}  // namespace psring::server
