#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/net/block_pool.h>
#include <psring/tests/support/in_process_network.h>

namespace psring::net {
namespace {

struct Inbox {
  std::deque<Message> messages;
  bool woken = false;
  std::condition_variable changed;
};

}  // namespace

struct InProcessNetwork::State {
  explicit State(std::uint64_t id) : job(id) {}

  const std::uint64_t job;
  const std::shared_ptr<BlockPool> blocks = std::make_shared<BlockPool>();
  std::mutex mutex;
  std::map<Peer, Inbox> inboxes;  ///< guarded by mutex
};

class InProcessNetwork::Endpoint final : public Transport {
 public:
  Endpoint(std::shared_ptr<State> state, Peer self, ByteLedger& ledger)
      : state_(std::move(state)), self_(self), ledger_(ledger) {
    const std::scoped_lock lock(state_->mutex);
    const auto [at, fresh] = state_->inboxes.try_emplace(self);
    check(fresh, "{} has an endpoint already", to_string(self));
    inbox_ = &at->second;
  }
  ~Endpoint() override {
    const std::scoped_lock lock(state_->mutex);
    state_->inboxes.erase(self_);
  }

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    if (payload.size() > kMaxPayloadBytes)
      fail(ErrorKind::bug, "a payload of {} bytes for {}", payload.size(), to_string(to));
    Message message;
    if (!payload.empty()) {
      const std::shared_ptr<std::byte> block = state_->blocks->take(payload.size());
      std::memcpy(block.get(), payload.data(), payload.size());
      message.payload = {block.get(), payload.size()};
      message.holder = block;
    }
    header.job = state_->job;
    header.sender_role = self_.role;
    header.sender_rank = self_.rank;
    header.payload_bytes = payload.size();
    {
      const std::scoped_lock lock(state_->mutex);
      const auto at = state_->inboxes.find(to);
      if (at == state_->inboxes.end()) fail(ErrorKind::peer_lost, "there is no link to {}", to_string(to));
      header.sequence = sequences_[to]++;
      // The header passes the codec, so a header that any other transport would refuse fails here, too.
      message.header = decode(encode(header));
      at->second.messages.push_back(std::move(message));
      at->second.changed.notify_one();
    }
    count(ByteLedger::Direction::sent, header, to);
  }

  std::optional<Message> receive(Moment deadline) override {
    std::unique_lock lock(state_->mutex);
    inbox_->changed.wait_until(lock, deadline, [&] { return inbox_->woken || !inbox_->messages.empty(); });
    if (std::exchange(inbox_->woken, false) || inbox_->messages.empty()) return std::nullopt;
    Message message = std::move(inbox_->messages.front());
    inbox_->messages.pop_front();
    lock.unlock();
    count(ByteLedger::Direction::received, message.header, message.header.sender());
    return message;
  }

  std::size_t in_flight_bytes(Peer) const override { return 0; }
  std::string describe(Peer) const override { return "in process"; }
  void wake() override {
    const std::scoped_lock lock(state_->mutex);
    inbox_->woken = true;
    inbox_->changed.notify_one();
  }

 private:
  void count(ByteLedger::Direction direction, const FrameHeader& header, Peer peer) {
    const bool start_up = (header.flags & FrameHeader::kStartUp) != 0;
    ledger_.add(direction, start_up ? "start-up" : std::string(to_string(header.type)), to_string(peer),
                header.payload_bytes, kHeaderBytes);
  }

  const std::shared_ptr<State> state_;
  const Peer self_;
  ByteLedger& ledger_;
  Inbox* inbox_;
  std::map<Peer, std::uint64_t> sequences_;
};

InProcessNetwork::InProcessNetwork(std::uint64_t job) : state_(std::make_shared<State>(job)) {}
InProcessNetwork::~InProcessNetwork() = default;

std::unique_ptr<Transport> InProcessNetwork::endpoint(Peer self, ByteLedger& ledger) {
  return std::make_unique<Endpoint>(state_, self, ledger);
}

}  // namespace psring::net
