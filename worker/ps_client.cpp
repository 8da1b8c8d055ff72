#include <algorithm>
#include <chrono>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/device/arena.h>
#include <psring/worker/ps_client.h>

namespace psring::worker {

std::size_t lent_bytes(const Layout& layout) {
  return 2 * (layout.elements() * sizeof(float) + (layout.units.size() + 1) * Arena::kAlignment);
}

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
    : transport_(transport), clock_(clock), options_(std::move(options)), protocol_(std::move(layout), options_.mark) {}

void PsClient::send() {
  for (const net::Outgoing& frame : frames_) outbox_.add(frame);
  frames_.clear();
  outbox_.flush(transport_);
}

void PsClient::open(std::uint64_t seed, bool initial_by_worker,
                    const std::function<std::span<const float>(std::size_t unit)>& initial) {
  protocol_.open(seed, initial_by_worker, frames_);
  send();
  wait_until([&] { return protocol_.opened(); }, "the servers to take the model", 0);
  if (!initial) return;
  for (std::size_t unit = 0; unit < layout().units.size(); ++unit) protocol_.initial(unit, initial(unit), frames_);
  send();
}

void PsClient::push(std::size_t unit, std::uint64_t step, std::span<const float> gradient) {
  const Busy busy(*this);
  protocol_.push(unit, step, gradient, frames_);
  send();
}

void PsClient::pull(std::size_t unit, std::uint64_t version, std::span<float> into, bool start_up) {
  const Busy busy(*this);
  protocol_.pull(unit, version, into, start_up, frames_);
  send();
}

void PsClient::push_pull(std::size_t unit, std::uint64_t step, std::span<const float> gradient, std::span<float> into) {
  const Busy busy(*this);
  protocol_.push_pull(unit, step, gradient, into, frames_);
  send();
}

void PsClient::progress() {
  const Busy busy(*this);
  while (const auto message = transport_.receive(Moment::min())) protocol_.on_message(*message);
  outbox_.flush(transport_);
}

void PsClient::wait(std::size_t unit, std::uint64_t version) {
  const Busy busy(*this);
  wait_until([&] { return protocol_.has(unit, version); }, "values", unit);
}

void PsClient::wait_acknowledged(std::size_t unit) {
  const Busy busy(*this);
  wait_until([&] { return protocol_.acknowledged(unit); }, "acknowledgements", unit);
}

void PsClient::wait_until(const std::function<bool()>& done, const char* what, std::size_t unit) {
  constexpr std::chrono::milliseconds kLook{100};
  if (done()) return;
  const Moment start = clock_.now();
  const Moment deadline = options_.op_timeout == Nanoseconds::max() ? kNever : start + options_.op_timeout;
  while (!done()) {
    outbox_.flush(transport_);
    const Moment now = clock_.now();
    if (now >= deadline)
      fail(ErrorKind::timeout, "waited {:.1f} s for {} of unit '{}'", seconds(now - start), what,
           layout().units[unit].name);
    if (const auto message = transport_.receive(std::min(deadline, now + kLook))) {
      protocol_.on_message(*message);
    } else if (options_.check) {
      options_.check();
    }
  }
}

}  // namespace psring::worker
