#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/net/transport.h>
#include <psring/ring/plan/plan.h>
#include <psring/ring/request.h>
#include <psring/ring/work.h>

namespace psring::ring {

class LinkEndpoint;

/// An operation in flight: executes a plan. Sends leave as soon as the action that they depend on is done; receiving
/// actions run in their order, each once its message has arrived.
class LinkOperation final : public Operation {
 public:
  /// `number`: in the group, or among the messages of one pair and direction.
  LinkOperation(LinkEndpoint& group, std::uint64_t number, const Request& request, Plan plan);

  bool advance() override;
  void wait() override;
  std::vector<std::size_t> awaited() const override;

  // For the engine and the endpoint, inside of LinkEngine::locked.
  std::uint64_t number() const { return number_; }
  const Announced& said() const { return said_; }
  const Call& call() const { return said_.call; }
  bool finished() const { return finished_; }
  /// Goes as far as possible without waiting; true once finished.
  bool step();
  /// Takes a message that belongs to this operation.
  void take(std::size_t from, net::Message message) { inbox_.push_back({from, std::move(message)}); }
  /// The memory that the payload of a message is received into; empty if the message has to be reduced, not stored.
  std::span<std::byte> place(std::size_t from, Range range) const;
  /// The rank of the group that this operation waits for.
  std::size_t missing() const;
  /// Tells that rank which operation this rank waits in.
  void probe() const;
  /// "[ring] rank 2: in all_reduce #17 (4.0 MiB), waiting for rank 1"
  std::string doing() const;

 private:
  struct Arrived {
    std::size_t from;
    net::Message message;
  };

  bool send_ready();
  bool do_next();
  bool has_left(std::size_t to) const;
  bool all_left() const;
  std::optional<net::Message> take_from_inbox(const Action& action);
  void reduce_in(const Action& action, std::span<const std::byte> payload);
  void combine(Range range);
  const Action* next() const;
  std::byte* at(std::size_t element) const { return data_.data + element * data_.type.bytes(); }

  LinkEndpoint& group_;
  const std::uint64_t number_;
  const Announced said_;
  const Vector data_;
  const ReduceOp op_;
  const Plan plan_;
  std::size_t sent_ = 0;                          ///< all sends before this action were handed to the transport
  std::size_t taken_ = 0;                         ///< all other actions before this action are done
  std::map<std::size_t, std::uint64_t> sent_to_;  ///< by rank: LinkEngine::send of the last frame
  bool finished_ = false;
  std::vector<Arrived> inbox_;
  std::vector<Arrived> collected_;
};

}  // namespace psring::ring
