#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/block_pool.h>
#include <psring/common/net/sim/reliable.h>

namespace psring::net {
namespace {

constexpr Nanoseconds kLook = std::chrono::milliseconds(20);  ///< the keeper's longest wait for a frame

class Reliable final : public ReliableTransport {
  /// Runs `body` in the owner's thread, alone with the links. The keeper pauses while the owner wants them.
  template <class Body>
  auto locked(Body body) const -> decltype(body()) {
    if (!options_.keeper) return body();
    ++wanted_;
    if (keeping_) inner_->wake();
    struct Leave {
      const Reliable& self;
      ~Leave() {
        --self.wanted_;
        self.changed_.notify_one();
      }
    };
    const MutexLock lock(mutex_);
    const Leave leave{*this};  // destroyed before the lock: a keeper that reads wanted_ misses no notification
    return body();
  }

 public:
  Reliable(std::shared_ptr<Transport> inner, const Options& options)
      : inner_(std::move(inner)), options_(options), clock_(*options.clock) {
    if (options_.keeper) keeper_ = std::thread([this] { keep(); });
  }
  ~Reliable() override {
    if (keeper_.joinable()) {
      locked([&] { stop_ = true; });
      changed_.notify_all();
      keeper_.join();
    }
    drain_links(clock_.now() + options_.linger);
  }

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (payload.size() > kMaxPayloadBytes)
      fail(ErrorKind::bug, "a payload of {} bytes for {}", payload.size(), to_string(to));
    std::shared_ptr<std::byte> block;
    if (!payload.empty()) {
      block = blocks_->take(payload.size());
      std::memcpy(block.get(), payload.data(), payload.size());
    }
    header.payload_bytes = payload.size();
    locked([&] {
      PeerState& peer = state(to);
      peer.link.send(header, {block.get(), payload.size()}, block);
      flush_link(to, peer, false);
      count(ByteLedger::Direction::sent, header, peer.name);
    });
  }

  std::optional<Message> receive(Moment deadline) override {
    return locked([&] { return next(deadline); });
  }
  std::size_t in_flight_bytes(Peer peer) const override {
    return locked([&] {
      const auto found = peers_.find(peer);
      return inner_->in_flight_bytes(peer) + (found == peers_.end() ? 0 : found->second.link.waiting_bytes());
    });
  }
  bool leaves_in_order(Peer peer) const override {
    return locked([&] { return inner_->leaves_in_order(peer); });
  }
  std::size_t window_bytes(Peer peer) const override {
    return locked([&] { return inner_->window_bytes(peer); });
  }
  std::string describe(Peer peer) const override {
    return locked([&] { return inner_->describe(peer) + ", reliable"; });
  }
  void wake() override {
    woken_ = true;
    inner_->wake();
  }
  void meet(Peer peer, std::uint32_t incarnation) override {
    locked([&] { begin_anew(peer, state(peer), incarnation); });
  }
  bool drain(Moment deadline) override {
    return locked([&] { return drain_links(deadline); });
  }

 private:
  struct PeerState {
    PeerState(const ReliableLink::Options& options, Peer peer) : link(options), name(to_string(peer)) {}
    ReliableLink link;
    const std::string name;
  };

  PeerState& state(Peer peer) { return peers_.try_emplace(peer, options_.link, peer).first->second; }
  void begin_anew(Peer peer, PeerState& state, std::uint32_t incarnation) {
    if (incarnation <= state.link.peer_incarnation()) return;
    state.link.meet(incarnation);
    forget(peer);
  }
  void forget(Peer peer) {
    std::erase_if(ready_, [&](const Message& message) { return message.header.sender() == peer; });
  }
  /// `receive`, with the links locked.
  std::optional<Message> next(Moment deadline) {
    for (;;) {
      if (woken_.exchange(false) && clock_.now() < deadline) return std::nullopt;
      // Takes all frames that are there first, so that the frames that leave next acknowledge them.
      while (ready_.empty() && look(Moment::min())) {
      }
      if (!ready_.empty()) {
        Message message = std::move(ready_.front());
        ready_.pop_front();
        flush(false);
        return message;
      }
      if (!found_.empty()) {
        const Error error = std::move(found_.front());
        found_.pop_front();
        throw error;
      }
      flush(true);
      if (woken_.exchange(false)) return std::nullopt;  // a look above may have consumed the inner transport's wake
      const Moment now = clock_.now();
      if (now >= deadline) return std::nullopt;
      const Moment until = std::min(deadline, due());
      if (!look(until) && clock_.now() < until) return std::nullopt;  // woken, or bytes have left
    }
  }

  /// Takes a frame of the inner transport. Returns false if none came.
  bool look(Moment deadline) {
    std::optional<Message> message = inner_->receive(deadline);
    if (!message) return false;
    take(std::move(*message));
    return true;
  }

  void take(Message message) {
    const Peer peer = message.header.sender();
    PeerState& from = state(peer);
    message.reply_space = {};
    const std::uint32_t before = from.link.peer_incarnation();
    from.link.on_frame(std::move(message), clock_.now(), delivered_);
    if (from.link.peer_incarnation() != before) forget(peer);
    for (Message& each : delivered_) {
      count(ByteLedger::Direction::received, each.header, from.name);
      ready_.push_back(std::move(each));
    }
    delivered_.clear();
  }

  void flush(bool idle) {
    for (auto& [peer, state] : peers_) {
      try {
        flush_link(peer, state, idle);
      } catch (const Error& error) {
        // The next `send` to this peer throws; if the owner only waits for the peer, the inner transport tells the
        // loss.
        if (error.kind() != ErrorKind::peer_lost) throw;
      }
    }
  }

  void flush_link(Peer peer, PeerState& state, bool idle) {
    const bool leaving = inner_->in_flight_bytes(peer) > 0;
    if (!leaving) state.link.release();
    leaving_.clear();
    state.link.poll(clock_.now(), idle, leaving, leaving_);
    try {
      for (const ReliableLink::Frame& frame : leaving_) {
        inner_->send(peer, frame.header, frame.payload);
        const std::size_t bytes = kHeaderBytes + frame.payload.size();
        if (frame.kind == ReliableLink::Frame::Kind::again) count_overhead("retransmitted", state.name, bytes);
        if (frame.kind == ReliableLink::Frame::Kind::acknowledge) count_overhead("acknowledge", state.name, bytes);
      }
    } catch (const Error&) {
      state.link.break_off();
      throw;
    }
  }

  Moment due() const {
    Moment due = kNever;
    for (const auto& [peer, state] : peers_) due = std::min(due, state.link.due());
    return due;
  }

  bool drain_links(Moment deadline) {
    const auto done = [&] {
      return std::all_of(peers_.begin(), peers_.end(), [](const auto& each) { return each.second.link.all_arrived(); });
    };
    std::size_t errors = 0;
    for (;;) {
      try {
        while (look(Moment::min())) {
        }
        flush(true);
        const Moment now = clock_.now();
        if (done() || now >= deadline) return done();
        look(std::min(deadline, due()));
      } catch (const Error& error) {
        // Each peer is lost once; a transport that repeats a loss for ever would never end this loop.
        if (error.kind() != ErrorKind::peer_lost || ++errors > peers_.size()) return false;
      }
    }
  }

  /// The keeper's thread does the links' work while the owner makes no calls.
  void keep() {
    MutexLock lock(mutex_);
    for (;;) {
      changed_.wait(mutex_, [&] { return stop_ || wanted_ == 0; });
      if (stop_) return;
      keeping_ = true;
      try {
        // Checks wanted_ again: an owner that raised it before keeping_ was set has not woken the inner transport.
        if (wanted_ == 0 && !look(std::min(clock_.now() + kLook, due()))) flush(true);
      } catch (const Error& error) {
        found_.push_back(error);
        if (error.kind() != ErrorKind::peer_lost) stop_ = true;
      }
      keeping_ = false;
    }
  }

  void count(ByteLedger::Direction direction, const FrameHeader& header, const std::string& peer) {
    if (options_.ledger == nullptr) return;
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    options_.ledger->add(direction, start_up ? "start-up" : to_string(header.type), peer, header.payload_bytes,
                         kHeaderBytes);
  }
  void count_overhead(const char* operation, const std::string& peer, std::size_t bytes) {
    if (options_.ledger != nullptr) options_.ledger->add(ByteLedger::Direction::sent, operation, peer, 0, bytes);
  }

  // Constant after construction.
  const std::shared_ptr<Transport> inner_;
  const Options options_;
  const Clock& clock_;
  const std::shared_ptr<BlockPool> blocks_ = std::make_shared<BlockPool>();

  std::map<Peer, PeerState> peers_;
  std::deque<Message> ready_;  ///< messages for the owner, in order
  std::vector<ReliableLink::Frame> leaving_;
  std::vector<Message> delivered_;
  std::deque<Error> found_;  ///< errors that the keeper found; each `receive` throws one

  mutable Mutex mutex_;  ///< guards all members above, if there is a keeper
  mutable Condition changed_;
  mutable std::atomic<unsigned> wanted_{0};
  std::atomic<bool> keeping_{false};
  std::atomic<bool> woken_{false};
  bool stop_ = false;
  std::thread keeper_;
};

}  // namespace

std::unique_ptr<ReliableTransport> make_reliable_transport(std::shared_ptr<Transport> inner,
                                                           const ReliableTransport::Options& options) {
  check(options.clock != nullptr, "a reliable transport needs a clock");
  return std::make_unique<Reliable>(std::move(inner), options);
}

}  // namespace psring::net
