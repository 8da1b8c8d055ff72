#include <algorithm>
#include <utility>
#include <variant>

#include <psring/common/proc/control/control_member.h>

namespace psring::net {

ControlMember::ControlMember(Options options, Moment now)
    : options_(std::move(options)), watch_(now + options_.join_timeout) {
  send(options_.hello);
}

void ControlMember::throw_if_broken() const {
  if (error_) throw Error(*error_);
  if (told_epoch_ > epoch_) throw Error(ErrorKind::peer_lost, prefix() + regroup_text_);
}

std::string ControlMember::prefix() const {
  if (role() == Role::agent) return "";
  return joined() ? fmt::format("[{}] rank {}: ", to_string(role()), self_.rank)
                  : fmt::format("[{}] ", to_string(role()));
}

void ControlMember::append(const std::string& file, std::span<const std::byte> bytes) {
  send_surely(control::Append{file, {bytes.begin(), bytes.end()}, ++appends_});
}

/// A status is in flight until the answer to the heartbeat after it, or to a later one.
void ControlMember::status(std::string json, bool is_last) {
  if (is_last) return send_surely(control::Status{std::move(json)});
  if (!outbox_.acknowledged(status_heartbeat_)) return;
  status_heartbeat_ = outbox_.next_heartbeat();
  watch_.request_heartbeat();
  send(control::Status{std::move(json)});
}

void ControlMember::done(std::uint64_t step, bool stopped) {
  if (stopped) interrupted_ = {stop_signal_, step, step};
  send_standing(control::Done{step, interrupted_.signal});
}

void ControlMember::enter_epoch() {
  epoch_ = told_epoch_;
  outbox_.end_epoch();
  finished_ = false;
  gate_ = {};
  if (members_ && members_epoch_ < epoch_) members_.reset();
}

std::optional<AgentOrder> ControlMember::take_order() {
  if (orders_.empty()) return std::nullopt;
  AgentOrder order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

bool ControlMember::receive(std::span<const std::byte> bytes, Moment now) {
  const bool is_back = watch_.hear(now);
  try {
    const bool changed = std::visit([&](auto&& message) { return on(std::forward<decltype(message)>(message), now); },
                                    decode_control(bytes));
    return is_back || changed;
  } catch (const Error& error) {
    lose(error.kind(), fmt::format("the coordinator ({}): {}", options_.endpoint, error.what()));
    return true;
  }
}

bool ControlMember::on(control::Welcome&& message, Moment now) {
  if (joined()) return false;  // the answer to a reconnect
  watch_.join({message.heartbeat_interval, message.heartbeat_timeout, message.patience}, now);
  if (message.patience > Nanoseconds(0)) outbox_.repeat_unacknowledged();
  epoch_ = told_epoch_ = message.epoch;
  self_ = {role(), message.rank};
  welcome_ = std::move(message);
  return true;
}

bool ControlMember::on(control::Refused&& message, Moment /*now*/) {
  lose(message.kind, fmt::format("--rdzv-endpoint {}: {}", options_.endpoint, message.text));
  return true;
}

/// The time to join begins anew, because the coordinator answers.
bool ControlMember::on(control::Wait&& message, Moment now) {
  if (joined()) return false;
  watch_.extend_join(now + options_.join_timeout);
  new_reason_ = reason_to_wait_ = std::move(message.text);
  return true;
}

bool ControlMember::on(control::Members&& message, Moment /*now*/) {
  told_epoch_ = std::max(told_epoch_, message.epoch);
  if (role() == Role::agent) epoch_ = told_epoch_;  // agents live through all epochs
  members_ = std::move(message.members);
  members_epoch_ = message.epoch;
  self_ = message.self;
  return true;
}

bool ControlMember::on(control::Regroup&& message, Moment /*now*/) {
  if (message.epoch <= told_epoch_) return true;
  told_epoch_ = message.epoch;
  regroup_text_ = std::move(message.text);
  return true;
}

bool ControlMember::on(control::StartRoles&& message, Moment /*now*/) {
  orders_.push_back({AgentOrder::Kind::start, std::move(message.roles), {}});
  return true;
}

bool ControlMember::on(control::EndRoles&& message, Moment /*now*/) {
  orders_.push_back({AgentOrder::Kind::end, std::move(message.roles), {}});
  return true;
}

bool ControlMember::on(control::Notice&& message, Moment /*now*/) {
  orders_.push_back({AgentOrder::Kind::tell, {}, std::move(message.text)});
  return true;
}

bool ControlMember::on(control::Lost&& message, Moment /*now*/) {
  latch(ErrorKind::peer_lost, message.text);
  return true;
}

bool ControlMember::on(control::Abort&& message, Moment /*now*/) {
  interrupted_.signal = message.signal;
  culprit_ = message.culprit;
  latch(message.kind, role() == Role::agent ? message.text : "the job has failed: " + message.text);
  return true;
}

bool ControlMember::on(control::Finish&& message, Moment /*now*/) {
  finished_ = true;
  if (message.interrupted.signal != 0) interrupted_ = message.interrupted;
  return true;
}

bool ControlMember::on(control::Pause&& message, Moment /*now*/) {
  if (message.epoch != epoch_) return false;  // that epoch is over for the coordinator, or has not begun here
  stop_signal_ = message.signal;
  const StopPoint point = gate_.pause();
  send_standing(control::Paused{message.epoch, point.step, message.signal, point.piece});
  return false;
}

bool ControlMember::on(control::StopBefore&& message, Moment /*now*/) {
  if (message.epoch == epoch_) gate_.stop_at({message.step, message.piece});
  return true;
}

bool ControlMember::on(control::HeartbeatAck&& message, Moment now) {
  watch_.hear_answer(now);
  offset_.add(message.sent, message.clock, now.time_since_epoch());
  outbox_.acknowledge(message.mark);
  return false;
}

bool ControlMember::on(auto&& message, Moment /*now*/) {
  fail(ErrorKind::protocol, "sent '{}', which only members may send",
       name_of(ControlMessage(std::forward<decltype(message)>(message))));
}

void ControlMember::lose(ErrorKind kind, const std::string& text) {
  if (gone_) return;
  gone_ = Error(kind, prefix() + text);
  outbox_.close();
  if (error_ || complete()) return;
  error_ = gone_;
  lost_ = true;
}

void ControlMember::latch(ErrorKind kind, const std::string& text) {
  if (!error_) error_ = Error(kind, prefix() + text);
}

bool ControlMember::lose_connection(const std::string& text, Moment now) {
  if (!joined() && options_.patient) return true;
  if (!joined() || welcome_->patience == Nanoseconds(0) || complete()) {
    lose(ErrorKind::peer_lost, text);
    return false;
  }
  watch_.lose_connection(now);
  return true;
}

void ControlMember::reconnect() {
  status_heartbeat_ = 0;  // a status was lost with the connection; the new one carries none
  control::Hello hello = options_.hello;
  if (joined()) {
    hello.rank = welcome_->rank;
    hello.epoch = told_epoch_;
    hello.duty = self_;
    hello.running = members_ && members_epoch_ == told_epoch_;
  }
  outbox_.reconnect(encode_control(hello), told_epoch_ == epoch_);
}

ControlMember::Look ControlMember::look(Moment now) {
  switch (watch_.look(now)) {
    case CoordinatorWatch::Verdict::fine:
      return {};
    case CoordinatorWatch::Verdict::not_joined:
      lose(ErrorKind::timeout,
           reason_to_wait_.empty()
               ? fmt::format("--rdzv-endpoint {}: no coordinator answered within {:g} s", options_.endpoint,
                             seconds(options_.join_timeout))
               : fmt::format("--rdzv-endpoint {}: may still not join after {:g} s (--join-timeout): {}",
                             options_.endpoint, seconds(options_.join_timeout), reason_to_wait_));
      return {.changed = true};
    case CoordinatorWatch::Verdict::silent_away:
      return {.changed = true};
    case CoordinatorWatch::Verdict::silent:
      return {.changed = true,
              .reconnect = lose_connection(fmt::format("nothing from the coordinator ({}) for {:.1f} s",
                                                       options_.endpoint, seconds(watch_.silence(now))),
                                           now)};
    case CoordinatorWatch::Verdict::did_not_return:
      lose(ErrorKind::peer_lost, fmt::format("the coordinator ({}) did not come back within {:g} s", options_.endpoint,
                                             seconds(welcome_->patience)));
      return {.changed = true};
  }
  return {};
}

std::vector<ControlOutbox::Bytes> ControlMember::take_outgoing(Moment now, std::uint64_t received) {
  std::vector<ControlOutbox::Bytes> outgoing = outbox_.take();
  if (watch_.take_heartbeat(now))
    outgoing.push_back(
        encode_control(control::Heartbeat{now.time_since_epoch(), outbox_.add_heartbeat(), idle_.idle(received, now)}));
  return outgoing;
}

}  // namespace psring::net
