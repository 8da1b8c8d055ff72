#include <cerrno>
#include <chrono>
#include <cstring>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/proc/signal_relay.h>

namespace psring {

SignalRelay::SignalRelay(SignalWatch& signals, net::ControlLink& link, const Clock& clock, bool leaves)
    : signals_(signals), link_(link), clock_(clock), leaves_(leaves), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(static_cast<bool>(wake_), "cannot create an eventfd: {}", std::strerror(errno));
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

SignalRelay::~SignalRelay() {
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
}

void SignalRelay::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd polled[] = {{signals_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    ::poll(polled, 2, -1);
    while (const auto signal = signals_.take()) pass_on(*signal);
  }
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
