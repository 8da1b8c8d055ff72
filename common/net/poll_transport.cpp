#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <psring/common/base/patience.h>
#include <psring/common/base/processor/hints.h>
#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/channel.h>

namespace psring::net {
namespace {

/// Time that a receiver spins before it sleeps. It is somewhat longer than falling asleep and waking up together, on a
/// virtual machine that hands back idle processors. With a shorter time, two processes that missed each other once keep
/// missing each other (measured at 4 KiB over ZeroMQ, push and pull, two processors: 127 to 270 us with 60 us, 124 to
/// 140 us with 120 us).
/// Each turn yields, because the peer, or ZeroMQ's thread, is often scheduled on this processor and would wait until
/// the spin ends (shared memory: 33 us without the yield, 6 to 13 us with it; TCP: 240 and 120 us).
constexpr Nanoseconds kSpin = std::chrono::microseconds(120);
/// Between two turns a receiver looks a few times at the channel of the last message alone, if frames are there without
/// a call of the kernel: a turn is such a call, and a look at ZeroMQ's sockets another (shared memory, 4 KiB: 2.0 us
/// with one look, 1.4 us with four).
constexpr int kLooksPerTurn = 4;
constexpr int kPausesPerLook = 4;
/// While messages of one channel come without a gap, the others have the first place once in this many calls.
constexpr std::size_t kCallsPerPlace = 16;

bool all_leave_process(const std::vector<std::unique_ptr<Channel>>& channels) {
  return std::all_of(channels.begin(), channels.end(), [](const auto& channel) { return channel->leaves_process(); });
}

class PollTransport final : public Transport {
 public:
  PollTransport(Peer self, std::uint64_t job, std::vector<std::unique_ptr<Channel>> channels, ByteLedger& ledger)
      : self_(self),
        job_(job),
        spin_(usable_processors() > 1 && all_leave_process(channels) ? kSpin : Nanoseconds(0)),
        channels_(std::move(channels)),
        ledger_(ledger),
        wake_fd_(make_eventfd()) {
    check(!channels_.empty(), "a transport without a channel");
    for (const auto& channel : channels_) fds_.push_back({channel->wait_fd(), POLLIN, 0});
    fds_.push_back({wake_fd_.get(), POLLIN, 0});
  }

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (payload.size() > kMaxPayloadBytes)
      fail(ErrorKind::bug, "a payload of {} bytes for {}", payload.size(), to_string(to));
    Channel* channel = find(to);
    if (channel == nullptr) fail(ErrorKind::peer_lost, "there is no link to {}", to_string(to));
    PeerState& peer = state(to);
    header.job = job_;
    header.sender_role = self_.role;
    header.sender_rank = self_.rank;
    header.sequence = peer.sequence;
    header.payload_bytes = payload.size();
    channel->send(to, header, payload);
    in_flight_ = in_flight_ || channel->in_flight_bytes(to) > 0;
    ++peer.sequence;
    count(ByteLedger::Direction::sent, header, peer, *channel);
  }

  std::optional<Message> receive(Moment deadline) override {
    const SystemClock clock;
    std::optional<Moment> spin_until;
    bool slept = false;
    bool busy = false;  // a channel refused to sleep: it has a frame, its own work, or room for more
    for (;;) {
      if (take_wake() && clock.now() < deadline) return std::nullopt;  // a test takes what is there all the same
      if (std::optional<Message> message = try_all()) {
        if (spin_until && !slept) patience_.learn(clock.now() < *spin_until);
        return message;
      }
      const Moment now = clock.now();
      if (now >= deadline || (busy && may_have_room())) return std::nullopt;
      busy = false;
      if (!spin_until) spin_until = now + (patience_.hopeful() ? spin_ : Nanoseconds(0));
      if (now < *spin_until) {
        if (std::optional<Message> message = spin()) {
          if (!slept) patience_.learn(true);
          return message;
        }
        ::sched_yield();
      } else if (!arm_all()) {
        busy = true;
      } else {
        if (!slept) patience_.learn(false);
        slept = true;
        sleep(deadline);
      }
    }
  }

  std::size_t in_flight_bytes(Peer peer) const override {
    const Channel* channel = find(peer);
    return channel == nullptr ? 0 : channel->in_flight_bytes(peer);
  }
  bool leaves_in_order(Peer peer) const override {
    const Channel* channel = find(peer);
    return channel == nullptr || channel->leaves_in_order(peer);
  }
  std::size_t window_bytes(Peer peer) const override {
    const Channel* channel = find(peer);
    return channel == nullptr ? kWindowBytes : channel->window_bytes();
  }
  void place_payloads(const Place& place) override {
    for (const auto& channel : channels_) channel->place_payloads(place);
  }
  std::string describe(Peer peer) const override {
    const Channel* channel = find(peer);
    return channel == nullptr ? "not linked" : channel->describe(peer);
  }
  void wake() override {
    woken_.store(true);
    const std::uint64_t one = 1;
    // A full counter has already woken the receiver
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
  }

 private:
  struct PeerState {
    std::string name;
    std::uint64_t sequence = 0;
    std::array<std::array<ByteLedger::Counter*, kFrameTypes + 1>, 2> counters{};  ///< by direction and operation
  };

  Channel* find(Peer peer) const {
    for (const auto& channel : channels_)
      if (channel->reaches(peer)) return channel.get();
    return nullptr;
  }
  PeerState& state(Peer peer) {
    PeerState& state = peers_[peer];
    if (state.name.empty()) state.name = to_string(peer);
    return state;
  }
  void count(ByteLedger::Direction direction, const FrameHeader& header, PeerState& peer, const Channel& channel) {
    if (!channel.leaves_process()) return;
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    ByteLedger::Counter*& counter = peer.counters[static_cast<std::size_t>(direction)]
                                                 [start_up ? kFrameTypes : static_cast<std::size_t>(header.type)];
    if (counter == nullptr)
      counter = &ledger_.counter(direction, start_up ? "start-up" : to_string(header.type), peer.name);
    counter->add(header.payload_bytes, channel.framing_bytes(header.payload_bytes));
  }
  /// Memory order: the first look may come too late or too early, because the exchange decides, and a sleep sees the
  /// eventfd: relaxed.
  bool take_wake() {
    if (!woken_.load(std::memory_order_relaxed) || !woken_.exchange(false)) return false;
    std::uint64_t rings = 0;
    [[maybe_unused]] const ssize_t read =
        ::read(wake_fd_.get(), &rings, sizeof rings);  // if empty, the bell rings later, without effect
    return true;
  }

  /// Returns whether bytes were in flight, so that there may be room now: a sender with priorities must check.
  bool may_have_room() {
    if (!in_flight_) return false;
    in_flight_ = false;
    for (const auto& [peer, state] : peers_) in_flight_ = in_flight_ || in_flight_bytes(peer) > 0;
    return true;
  }

  /// Returns the next message of a channel.
  std::optional<Message> try_one(std::size_t at) {
    std::optional<Message> message = channels_[at]->try_receive();
    if (!message) return message;
    last_ = at;
    PeerState& peer = state(message->header.sender());
    if (message->header.job != job_)
      fail(ErrorKind::protocol, "{} sent a frame of job {:016x}, this is {:016x}", peer.name, message->header.job,
           job_);
    count(ByteLedger::Direction::received, message->header, peer, *channels_[at]);
    return message;
  }

  /// Returns the next message of any channel. The channel of the last message comes first: its peer answers soon.
  std::optional<Message> try_all() {
    const std::size_t first = ++calls_ % kCallsPerPlace == 0 ? last_ + 1 : last_;
    for (std::size_t i = 0; i < channels_.size(); ++i)
      if (std::optional<Message> message = try_one((first + i) % channels_.size())) return message;
    return std::nullopt;
  }

  /// Waits for a moment. Returns a message that came meanwhile.
  std::optional<Message> spin() {
    const bool looks = channels_[last_]->is_memory();
    for (int look = 0; look < (looks ? kLooksPerTurn : 1); ++look) {
      for (int i = 0; i < kPausesPerLook; ++i) spin_pause();
      if (!looks) continue;
      if (std::optional<Message> message = try_one(last_)) return message;
    }
    return std::nullopt;
  }

  bool arm_all() {
    for (const auto& channel : channels_)
      if (!channel->arm()) return false;
    return true;
  }

  void sleep(Moment deadline) {
    const Nanoseconds left = std::max(deadline - SystemClock().now(), Nanoseconds(0));
    const timespec limit{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    if (::ppoll(fds_.data(), fds_.size(), &limit, nullptr) < 0 && errno != EINTR)
      fail(ErrorKind::bug, "ppoll: {}", std::strerror(errno));
    for (std::size_t i = 0; i < channels_.size(); ++i)
      if ((fds_[i].revents & POLLIN) != 0) channels_[i]->woken();
    if ((fds_.back().revents & POLLIN) != 0) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t read = ::read(wake_fd_.get(), &rings, sizeof rings);
    }
  }

  // Constant after construction.
  const Peer self_;
  const std::uint64_t job_;
  const Nanoseconds spin_;
  const std::vector<std::unique_ptr<Channel>> channels_;
  ByteLedger& ledger_;
  const Fd wake_fd_;

  // Used by the owning thread only.
  std::vector<pollfd> fds_;
  std::map<Peer, PeerState> peers_;
  std::size_t last_ = 0;    ///< the channel of the last message
  std::size_t calls_ = 0;   ///< of try_all
  bool in_flight_ = false;  ///< sent bytes may not have left yet
  Patience patience_;

  std::atomic<bool> woken_{false};
};

}  // namespace

std::unique_ptr<Transport> make_poll_transport(Peer self, std::uint64_t job,
                                               std::vector<std::unique_ptr<Channel>> channels, ByteLedger& ledger) {
  return std::make_unique<PollTransport>(self, job, std::move(channels), ledger);
}

}  // namespace psring::net
