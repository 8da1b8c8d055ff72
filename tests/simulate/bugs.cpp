#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <psring/tests/simulate/bugs.h>

namespace psring::test {
namespace {

using net::FrameHeader;
using net::FrameType;
using net::Message;
using net::Peer;
using net::Role;

/// Changes what arrives, or is sent; all else is the transport's below.
class Through : public net::Transport {
 public:
  explicit Through(net::Transport& inner) : inner_(inner) {}
  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    inner_.send(to, header, payload);
  }
  std::optional<Message> receive(Moment deadline) override {
    if (made_.empty()) return inner_.receive(deadline);
    Message message = std::move(made_.front());
    made_.pop_front();
    return message;
  }
  std::size_t in_flight_bytes(Peer peer) const override { return inner_.in_flight_bytes(peer); }
  std::size_t window_bytes(Peer peer) const override { return inner_.window_bytes(peer); }
  std::string describe(Peer peer) const override { return inner_.describe(peer); }
  void wake() override { inner_.wake(); }

 protected:
  std::deque<Message> made_;  ///< to be received next

 private:
  net::Transport& inner_;
};

/// The bug: a frame counts as taken by the follower as soon as it is sent.
class EarlyAnswers final : public Through {
 public:
  EarlyAnswers(net::Transport& inner, Peer follower) : Through(inner), follower_(follower) {}

  void send(Peer to, FrameHeader header, std::span<const std::byte> payload) override {
    Through::send(to, header, payload);
    if (to != follower_) return;
    Message taken{};
    taken.header.type = FrameType::replicated;
    taken.header.sender_role = follower_.role;
    taken.header.sender_rank = follower_.rank;
    taken.header.version = ++sent_;
    made_.push_back(std::move(taken));
  }
  std::optional<Message> receive(Moment deadline) override {
    const bool made = !made_.empty();
    std::optional<Message> message = Through::receive(deadline);
    const bool late = message && !made && message->header.type == FrameType::replicated && message->header.version > 0;
    return late ? std::nullopt : std::move(message);
  }

 private:
  const Peer follower_;
  std::uint64_t sent_ = 0;
};

class EarlyAnswering final : public view::ServerLinks {
 public:
  explicit EarlyAnswering(std::size_t servers) : servers_(static_cast<std::uint32_t>(servers)) {}
  std::unique_ptr<net::Transport> wrap(net::Transport& transport, Peer self) override {
    if (self.rank >= servers_) return std::make_unique<Through>(transport);
    return std::make_unique<EarlyAnswers>(transport, Peer{Role::server, self.rank + servers_});
  }

 private:
  const std::uint32_t servers_;
};

/// Which pushes of a step a server has taken.
class Pushes {
 public:
  explicit Pushes(std::size_t of_step) : of_step_(of_step) {}
  /// Had the step's update been made before it came?
  bool is_late(const FrameHeader& push) {
    auto& taken = taken_[{push.unit, push.begin, push.step}];
    if (taken.size() == of_step_) return true;
    taken.emplace(push.sender_rank, push.micro);
    return false;
  }

 private:
  const std::size_t of_step_;
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>, std::set<std::pair<std::uint32_t, std::uint32_t>>>
      taken_;
};

class DoubleUpdates final : public Through {
 public:
  DoubleUpdates(net::Transport& inner, Pushes& pushes) : Through(inner), pushes_(pushes) {}

  std::optional<Message> receive(Moment deadline) override {
    const bool made = !made_.empty();
    std::optional<Message> message = Through::receive(deadline);
    if (made || !message) return message;
    const FrameType type = message->header.type;
    if ((type != FrameType::push && type != FrameType::push_pull) || !pushes_.is_late(message->header)) return message;
    Message again = *message;
    again.header.type = FrameType::push;
    again.header.flags = 0;
    ++again.header.step;
    made_.push_back(std::move(again));
    return message;
  }

 private:
  Pushes& pushes_;
};

/// The bug: gradients of rows that are repeated after their update are added to the worker's next ones.
class DoubleRows final : public Through {
 public:
  using Place = std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>;
  using Repeated = std::map<Place, std::vector<float>>;
  DoubleRows(net::Transport& inner, Pushes& pushes, Repeated& repeated)
      : Through(inner), pushes_(pushes), repeated_(repeated) {}

  std::optional<Message> receive(Moment deadline) override {
    std::optional<Message> message = Through::receive(deadline);
    if (!message || message->header.type != FrameType::rows_push || message->header.dtype != DType::f32) return message;
    const FrameHeader& header = message->header;
    const Place place{header.unit, header.begin, header.sender_rank};
    const auto own = std::make_shared<std::vector<float>>(message->payload.size() / sizeof(float));
    std::memcpy(own->data(), message->payload.data(), message->payload.size());
    if (pushes_.is_late(header)) {
      repeated_[place] = *own;
      return message;
    }
    const std::vector<float> again = std::exchange(repeated_[place], {});
    for (std::size_t i = 0; i < std::min(again.size(), own->size()); ++i) (*own)[i] += again[i];
    message->payload = std::as_bytes(std::span(*own));
    message->holder = own;
    return message;
  }

 private:
  Pushes& pushes_;
  Repeated& repeated_;
};

class DoubleRowUpdating final : public view::ServerLinks {
 public:
  explicit DoubleRowUpdating(std::size_t workers) : pushes_(workers) {}
  std::unique_ptr<net::Transport> wrap(net::Transport& transport, Peer /*self*/) override {
    return std::make_unique<DoubleRows>(transport, pushes_, repeated_);
  }

 private:
  Pushes pushes_;
  DoubleRows::Repeated repeated_;
};

class DoubleUpdating final : public view::ServerLinks {
 public:
  explicit DoubleUpdating(std::size_t pushes) : pushes_(pushes) {}
  std::unique_ptr<net::Transport> wrap(net::Transport& transport, Peer /*self*/) override {
    return std::make_unique<DoubleUpdates>(transport, pushes_);
  }

 private:
  Pushes pushes_;
};

}  // namespace

std::unique_ptr<view::ServerLinks> make_buggy(Bug bug, const JobOptions& job, std::size_t pushes) {
  if (bug == Bug::early_answers && job.replicas > 0) return std::make_unique<EarlyAnswering>(job.servers);
  if (bug == Bug::double_updates && job.consistency == "bsp") return std::make_unique<DoubleUpdating>(pushes);
  if (bug == Bug::double_rows && job.consistency == "bsp") return std::make_unique<DoubleRowUpdating>(job.workers);
  return nullptr;
}

}  // namespace psring::test
