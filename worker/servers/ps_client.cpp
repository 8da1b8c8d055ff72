#include <algorithm>
#include <chrono>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>
#include <psring/worker/exchange/tables/tables.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::worker {

std::size_t lent_bytes(const Layout& layout) {
  const std::size_t gradient_bytes = layout.elements() * size_bytes(layout.gradient_type);
  std::size_t rows = 0;
  for (const TableLayout& table : layout.tables) rows += lent_bytes(table);
  return layout.parameter_bytes() + 2 * gradient_bytes + rows + 3 * (layout.units.size() + 1) * Arena::kAlignment;
}

std::vector<double> window_weights(const CutWeights& weights) {
  constexpr double kMost = 16;  // bounds the bytes that a more urgent frame waits for
  if (weights.even()) return {};
  std::uint32_t least = weights.weight(0);
  for (std::size_t server = 0; server < weights.owners(); ++server) least = std::min(least, weights.weight(server));
  std::vector<double> windows;
  for (std::size_t server = 0; server < weights.owners(); ++server)
    windows.push_back(std::min(kMost, 1.0 * weights.weight(server) / least));
  return windows;
}

namespace {

/// Runs the call, and adds the worker's activity to the error of a lost peer.
template <class Call>
auto telling(const auto& doing, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::peer_lost) throw;
    throw Error(error.kind(), fmt::format("{} while {}", error.what(), doing()));
  }
}

}  // namespace

class PsClient::Busy {
 public:
  explicit Busy(PsClient& client) : client_(client), start_(client.clock_.now()) {}
  ~Busy() { client_.busy_ += client_.clock_.now() - start_; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  PsClient& client_;
  const Moment start_;
};

PsClient::PsClient(net::Transport& transport, const Clock& clock, Layout layout, Options options)
    : transport_(transport),
      clock_(clock),
      options_(std::move(options)),
      protocol_(std::move(layout), options_.mark, options_.first_owner, options_.codec, options_.copied_pushes),
      flights_(options_.events != nullptr && options_.events->detailed() ? protocol_.layout().units.size() : 0) {
  if (options_.own_server) outbox_.hold({net::Role::server, static_cast<std::uint32_t>(*options_.own_server)});
  const std::vector<double> windows = window_weights(protocol_.layout().weights);
  for (std::uint32_t server = 0; server < windows.size(); ++server)
    outbox_.set_weight({net::Role::server, server}, windows[server]);
}

/// `what` is the text for errors, and is made only then.
void PsClient::wait_until(const auto& done, const auto& what) {
  constexpr std::chrono::milliseconds kLook{100};
  if (done()) return;
  const Moment start = clock_.now();
  const Moment deadline = options_.op_timeout == Nanoseconds::max() ? kNever : start + options_.op_timeout;
  const auto doing = [&] { return "waiting for " + what(); };
  while (!done()) {
    const Moment now = clock_.now();
    if (now >= deadline)
      fail(ErrorKind::timeout, "waited {:.1f} s (--op-timeout) for {}", seconds(now - start), what());
    const auto message = telling(doing, [&] {
      outbox_.flush(transport_);
      return transport_.receive(std::min(deadline, now + kLook));
    });
    if (message) {
      take(*message);
    } else if (options_.check) {
      options_.check();
    }
  }
}

/// `what` as for wait_until.
void PsClient::send(const auto& what) {
  for (const net::Outgoing& frame : frames_) outbox_.add(frame);
  frames_.clear();
  telling([&] { return "sending " + what(); }, [&] { outbox_.flush(transport_); });
}

void PsClient::take(const net::Message& message) {
  if (receiver_ && receiver_(message)) {
    if (message.header.type == net::FrameType::rows_ack) protocol_.add_staleness(message.header);
    return;
  }
  protocol_.on_message(message);
  const std::size_t unit = message.header.unit;
  if (unit < flights_.size() && protocol_.settled(unit)) flights_[unit].land();
}

void PsClient::take_off(const char* what, std::size_t unit) {
  if (flights_.empty()) return;
  const bool pushes = std::string_view(what) != "pull";
  const std::uint64_t bytes = pushes ? layout().gradient_bytes(unit) : layout().parameter_bytes(unit);
  flights_[unit] = Events::Flight(*options_.events, {what, {unit, unit + 1}, bytes}, options_.events->caller());
}

std::string PsClient::name_of(std::size_t unit, std::uint64_t step) const {
  return fmt::format("unit '{}', step {}", layout().units[unit].name, step);
}

void PsClient::open(std::uint64_t seed, bool initial_by_worker,
                    const std::function<std::span<const float>(std::size_t unit)>& initial) {
  protocol_.open(seed, initial_by_worker, frames_);
  send([] { return std::string("the model's layout"); });
  wait_until([&] { return protocol_.opened(); }, [] { return std::string("the servers to take the model"); });
  if (!initial || protocol_.version() > 0) return;
  for (std::size_t unit = 0; unit < layout().units.size(); ++unit) protocol_.initial(unit, initial(unit), frames_);
  send([] { return std::string("the initial values"); });
}

void PsClient::send_initial(std::size_t unit, std::span<const float> values) {
  protocol_.initial(unit, values, frames_);
  send([&] { return fmt::format("the initial values of unit '{}'", layout().units[unit].name); });
}

void PsClient::push(std::size_t unit, std::uint64_t step, ConstElements gradient, std::size_t micro) {
  const Busy busy(*this);
  step_ = step;
  take_off("push", unit);
  protocol_.push(unit, step, micro, gradient, frames_);
  send([&] { return name_of(unit, step); });
}

void PsClient::pull(std::size_t unit, std::uint64_t version, Elements into, bool start_up) {
  const Busy busy(*this);
  take_off("pull", unit);
  protocol_.pull(unit, version, into, start_up, frames_);
  for (net::Outgoing& frame : frames_) frame.header.step = step_;
  send([&] { return "the request for " + name_of(unit, version); });
}

void PsClient::push_pull(std::size_t unit, std::uint64_t step, ConstElements gradient, Elements into) {
  const Busy busy(*this);
  step_ = step;
  take_off("push_pull", unit);
  protocol_.push_pull(unit, step, gradient, into, frames_);
  send([&] { return name_of(unit, step); });
}

void PsClient::send(const std::function<void(ClientProtocol::Frames&)>& begin,
                    const std::function<std::string()>& what) {
  const Busy busy(*this);
  begin(frames_);
  send(what);
}

void PsClient::wait(const std::function<bool()>& done, const std::function<std::string()>& what) {
  const Busy busy(*this);
  wait_until(done, what);
}

void PsClient::progress() {
  const Busy busy(*this);
  telling([&] { return fmt::format("taking what has arrived in step {}", step_); },
          [&] {
            while (const auto message = transport_.receive(Moment::min())) take(*message);
          });
  send([&] { return fmt::format("what is left of step {}", step_); });
}

void PsClient::drain() {
  const Busy busy(*this);
  const auto left = [&] {
    for (std::uint32_t server = 0; server < layout().owners; ++server)
      if (transport_.in_flight_bytes({net::Role::server, server}) > 0) return false;
    return outbox_.empty();
  };
  wait_until(left, [&] { return fmt::format("the servers to take the pushes of step {}", step_); });
}

bool PsClient::wait_message(Moment until) {
  const Busy busy(*this);
  return telling([&] { return fmt::format("waiting for the servers in step {}", step_); },
                 [&] {
                   const auto message = transport_.receive(until);
                   if (message) take(*message);
                   return message.has_value();
                 });
}

void PsClient::wait(std::size_t unit, std::uint64_t version) {
  const Busy busy(*this);
  wait_until([&] { return protocol_.has(unit, version); }, [&] { return name_of(unit, version); });
}

void PsClient::wait_acknowledged(std::size_t unit) {
  const Busy busy(*this);
  wait_until([&] { return protocol_.acknowledged(unit); },
             [&] { return fmt::format("the servers to take unit '{}'", layout().units[unit].name); });
}

void PsClient::leave() {
  protocol_.leave(frames_);
  send([] { return std::string("that it has done all its steps"); });
}

double PsClient::take_staleness() {
  const ClientProtocol::Staleness all = protocol_.take_staleness();
  return all.updates == 0 ? 0 : static_cast<double>(all.sum) / static_cast<double>(all.updates);
}

void PsClient::save(std::uint64_t version, std::size_t others) {
  const auto what = [&] { return fmt::format("the servers to save step {}", version); };
  protocol_.save(version, others, frames_);
  send(what);
  wait_until([&] { return protocol_.saved(); }, what);
}

void PsClient::written(std::uint64_t version) {
  protocol_.written(version, frames_);
  send([&] { return fmt::format("that its part of the checkpoint of step {} is written", version); });
}

}  // namespace psring::worker
