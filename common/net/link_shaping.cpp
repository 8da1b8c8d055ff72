#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/link_shaping.h>

namespace psring::net {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};
constexpr Unit kRates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
constexpr Unit kTimes[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// Parses a number followed by one of the units, ignoring case. Returns it in the smallest unit.
std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return same_word(u.name, name); });
  if (unit == units.end()) return std::nullopt;
  return value * unit->scale;
}

constexpr Nanoseconds kWindow = std::chrono::milliseconds(10);
constexpr std::size_t kLeastWindowBytes = std::size_t{64} << 10;

void ring(const Fd& bell) { ::eventfd_write(bell.get(), 1); }

void quieten(const Fd& bell) {
  eventfd_t rings = 0;
  ::eventfd_read(bell.get(), &rings);
}

class ShapedChannel final : public Channel {
 public:
  ShapedChannel(std::unique_ptr<Channel> inner, std::shared_ptr<LinkShaper> shaper)
      : shaper_(std::move(shaper)),
        inner_(std::move(inner)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~ShapedChannel() override;

  bool reaches(Peer peer) const override {
    const MutexLock lock(mutex_);
    return inner_->reaches(peer);
  }
  void send(Peer to, const FrameHeader& header, std::span<const std::byte> payload) override {
    const MutexLock lock(mutex_);
    if (!inner_->reaches(to)) fail(ErrorKind::peer_lost, "{}: the link is gone", to_string(to));
    const Moment start = shaper_->depart(payload.size() + framing_bytes(payload.size()), SystemClock().now());
    Departure& frame = departures_.emplace_back(Departure{start, to, header, payload, nullptr});
    if (!payload.empty() && payload.size() <= kCopiedBytes) {
      frame.copy.reset(new std::byte[payload.size()]);
      std::memcpy(frame.copy.get(), payload.data(), payload.size());
      frame.payload = {frame.copy.get(), payload.size()};
    }
    waiting_bytes_[to] += payload.size();
    // The thread continues with later frames by itself.
    if (departures_.size() == 1) ring(kick_);
  }

  std::optional<Message> try_receive() override {
    const MutexLock lock(mutex_);
    if (ready_.empty()) return std::nullopt;
    Arrival arrival = std::move(ready_.front());
    ready_.pop_front();
    if (arrival.error) throw Error(*arrival.error);
    return std::move(arrival.message);
  }

  bool arm() override {
    const MutexLock lock(mutex_);
    quieten(bell_);
    return !std::exchange(left_, false) && ready_.empty();
  }

  int wait_fd() const override { return bell_.get(); }
  std::size_t in_flight_bytes(Peer peer) const override {
    const MutexLock lock(mutex_);
    const auto waiting = waiting_bytes_.find(peer);
    return inner_->in_flight_bytes(peer) + (waiting == waiting_bytes_.end() ? 0 : waiting->second);
  }

  bool leaves_in_order(Peer peer) const override {
    const MutexLock lock(mutex_);
    return inner_->leaves_in_order(peer);
  }
  std::size_t window_bytes() const override { return net::window_bytes(shaper_->link()); }
  std::size_t framing_bytes(std::size_t payload_bytes) const override PSRING_UNCHECKED {  // constant
    return inner_->framing_bytes(payload_bytes);
  }
  std::string describe(Peer peer) const override {
    const MutexLock lock(mutex_);
    return fmt::format("{}, shaped to {}", inner_->describe(peer), to_string(shaper_->link()));
  }

 private:
  struct Departure {
    Moment start;
    Peer to;
    FrameHeader header;
    std::span<const std::byte> payload;
    std::unique_ptr<std::byte[]> copy;
  };
  /// A frame, or the loss of a peer. A loss comes after the frames before it.
  struct Arrival {
    Moment at;
    std::optional<Message> message;
    std::optional<Error> error;
  };

  void run(const std::stop_token& stop) {
    const SystemClock clock;
    bool woken = false;  // the inner channel ended the sleep
    while (!stop.stop_requested()) {
      Moment next = kNever;
      bool quiet = false;
      {
        const MutexLock lock(mutex_);
        quieten(kick_);
        if (std::exchange(woken, false)) inner_->woken();
        depart(clock.now());
        quiet = !receive();
        arrive(clock.now());
        if (!departures_.empty()) next = departures_.front().start;
        if (!arrivals_.empty()) next = std::min(next, arrivals_.front().at);
        // arm returns false if a frame is there, or if bytes have left and there is room for more.
        if (quiet && !inner_->arm()) {
          quiet = false;
          left_ = true;
          ring(bell_);
        }
      }
      if (quiet) woken = sleep(next);
    }
  }

  void depart(Moment now) PSRING_REQUIRES(mutex_) {
    while (!departures_.empty() && departures_.front().start <= now) {
      const Departure frame = std::move(departures_.front());
      departures_.pop_front();
      waiting_bytes_[frame.to] -= frame.payload.size();
      hand_over(frame);
      left_ = true;
      ring(bell_);
    }
  }

  /// Drops frames to a peer that is gone: its loss is reported separately.
  void hand_over(const Departure& frame) PSRING_REQUIRES(mutex_) {
    if (!inner_->reaches(frame.to)) return;
    try {
      inner_->send(frame.to, frame.header, frame.payload);
    } catch (const Error& error) {
      add_error(error);
    }
  }

  /// Receives a few frames of the inner channel. Returns false if there was none.
  bool receive() PSRING_REQUIRES(mutex_) {
    constexpr int kFramesAtOnce = 64;  // limits the time until the caller can take the lock
    for (int i = 0; i < kFramesAtOnce; ++i) {
      try {
        std::optional<Message> message = inner_->try_receive();
        if (!message) return false;
        const std::size_t bytes = message->payload.size() + framing_bytes(message->payload.size());
        arrivals_.push_back({shaper_->arrive(bytes, SystemClock().now()), std::move(message), std::nullopt});
      } catch (const Error& error) {
        add_error(error);
      }
    }
    return true;
  }

  void arrive(Moment now) PSRING_REQUIRES(mutex_) {
    while (!arrivals_.empty() && arrivals_.front().at <= now) {
      ready_.push_back(std::move(arrivals_.front()));
      arrivals_.pop_front();
      ring(bell_);
    }
  }

  void add_error(const Error& error) PSRING_REQUIRES(mutex_) {
    arrivals_.push_back({arrivals_.empty() ? SystemClock().now() : arrivals_.back().at, std::nullopt, error});
  }

  /// Returns whether the inner channel ended the sleep.
  bool sleep(Moment until) const PSRING_UNCHECKED {
    pollfd items[] = {{inner_->wait_fd(), POLLIN, 0}, {kick_.get(), POLLIN, 0}};
    const Nanoseconds left = until == kNever ? Nanoseconds(0) : std::max(until - SystemClock().now(), Nanoseconds(0));
    const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    ::ppoll(items, std::size(items), until == kNever ? nullptr : &limit, nullptr);
    return (items[0].revents & POLLIN) != 0;
  }

  // Constant after construction.
  const std::shared_ptr<LinkShaper> shaper_;  ///< shared with the process's other channels
  const int exceptions_ = std::uncaught_exceptions();
  const Fd kick_ = make_eventfd();  ///< wakes the channel's thread
  const Fd bell_ = make_eventfd();  ///< wakes the caller

  mutable Mutex mutex_;
  const std::unique_ptr<Channel> inner_ PSRING_GUARDED_BY(mutex_);  ///< belongs to the thread that holds the lock
  std::deque<Departure> departures_ PSRING_GUARDED_BY(mutex_);      ///< ordered by start time
  std::map<Peer, std::size_t> waiting_bytes_ PSRING_GUARDED_BY(mutex_);
  std::deque<Arrival> arrivals_ PSRING_GUARDED_BY(mutex_);  ///< ordered by time
  std::deque<Arrival> ready_ PSRING_GUARDED_BY(mutex_);
  bool left_ PSRING_GUARDED_BY(mutex_) = false;

  std::jthread thread_;
};

ShapedChannel::~ShapedChannel() {
  thread_.request_stop();
  ring(kick_);
  thread_.join();
  if (std::uncaught_exceptions() == exceptions_)
    for (const Departure& frame : departures_) hand_over(frame);
}

}  // namespace

LinkSpec parse_link(const std::string& text) {
  constexpr double kLeastRate = 1e3;
  constexpr double kMostRate = 1e12;
  constexpr double kMostDelay = 10e9;
  const std::string_view all = text;
  const std::size_t comma = all.find(',');
  const auto rate = parse_quantity(all.substr(0, comma), kRates);
  const std::string_view behind = comma == std::string_view::npos ? "0s" : all.substr(comma + 1);
  if (rate && parse_quantity(behind.substr(0, behind.find(',')), kRates))
    fail(ErrorKind::usage, "--link: expected one rate, got '{}'; psring compare runs each rate of a list", text);
  const auto delay = parse_quantity(behind, kTimes);
  if (!rate || !delay)
    fail(ErrorKind::usage, "--link: expected RATE[,DELAY] such as 1gbit,0.2ms or 100mbit, got '{}'", text);
  if (!(*rate >= kLeastRate && *rate <= kMostRate))
    fail(ErrorKind::usage, "--link: expected a rate from 1kbit to 1000gbit, got '{}'", text);
  if (!(*delay >= 0 && *delay <= kMostDelay))
    fail(ErrorKind::usage, "--link: expected a delay from 0 to 10s, got '{}'", text);
  return {*rate, Nanoseconds(std::llround(*delay))};
}

std::string to_string(const LinkSpec& link) {
  const double rate = link.bits_per_second;
  std::string text = rate >= 1e9   ? fmt::format("{:g} Gbit/s", rate / 1e9)
                     : rate >= 1e6 ? fmt::format("{:g} Mbit/s", rate / 1e6)
                                   : fmt::format("{:g} kbit/s", rate / 1e3);
  if (link.delay >= std::chrono::milliseconds(1)) return fmt::format("{}, {:g} ms", text, seconds(link.delay) * 1e3);
  if (link.delay > Nanoseconds(0)) return fmt::format("{}, {:g} us", text, seconds(link.delay) * 1e6);
  return text;
}

std::size_t window_bytes(const LinkSpec& link) {
  const double bytes = link.bits_per_second / 8 * seconds(kWindow);
  return std::clamp(static_cast<std::size_t>(bytes), kLeastWindowBytes, kWindowBytes);
}

Nanoseconds LinkShaper::time_of(std::size_t bytes) const {
  return Nanoseconds(std::llround(static_cast<double>(bytes) * 8e9 / link_.bits_per_second));
}

Moment LinkShaper::depart(std::size_t bytes, Moment now) {
  const MutexLock lock(mutex_);
  const Moment start = std::max(egress_free_, now);
  egress_free_ = start + time_of(bytes);
  return start;
}

Moment LinkShaper::arrive(std::size_t bytes, Moment now) {
  const MutexLock lock(mutex_);
  ingress_free_ = std::max(ingress_free_, now + link_.delay) + time_of(bytes);
  return ingress_free_;
}

std::unique_ptr<Channel> make_shaped_channel(std::unique_ptr<Channel> inner, std::shared_ptr<LinkShaper> shaper) {
  return std::make_unique<ShapedChannel>(std::move(inner), std::move(shaper));
}

}  // namespace psring::net
