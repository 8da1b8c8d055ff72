#include <chrono>
#include <optional>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/signal_relay.h>

namespace psring {
namespace {

constexpr int kLookMs = 1000;  ///< between two looks whether the job has failed
constexpr Nanoseconds kTimeToEnd =
    std::chrono::seconds(4);  ///< for the process to end by itself, after the job has failed

}  // namespace

SignalRelay::SignalRelay(SignalWatch& signals, net::ControlLink& link, const Clock& clock, bool leaves)
    : signals_(signals), link_(link), clock_(clock), leaves_(leaves), wake_(make_eventfd()) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

SignalRelay::~SignalRelay() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
}

void SignalRelay::run(const std::stop_token& stop) {
  std::optional<Moment> failed;
  while (!stop.stop_requested()) {
    pollfd polled[] = {{signals_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, kLookMs);
    while (const auto signal = signals_.take()) pass_on(*signal);
    if (!link_.failed()) continue;
    if (!failed) failed = clock_.now();
    if (clock_.now() - *failed >= kTimeToEnd) leave();
  }
}

void SignalRelay::leave() {
  int status = exit_status(ErrorKind::peer_lost);
  try {
    link_.check();
  } catch (const Error& error) {
    out::error(error.what());
    status = exit_status(error.kind());
  }
  const int signal = link_.interrupted().signal;
  ::_exit(signal != 0 ? interrupted_status(signal) : status);
}

void SignalRelay::pass_on(int signal) {
  using Request = net::StopRequests::Request;
  if (leaves_) ::_exit(interrupted_status(signal));  // a process with number 1 cannot end itself by a signal
  const Request request = requests_.take(signal, clock_.now());
  if (request == Request::same) return;
  if (request == Request::first && !link_.failed()) return link_.interrupt(signal);
  try {
    if (!link_.failed()) {
      link_.interrupt(signal, true);
      link_.flush(clock_.now() + std::chrono::milliseconds(200));
    }
  } catch (const Error&) {  // the coordinator has gone
  }
  die_of(signal);
}

}  // namespace psring
