#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/ring/process_group.h>
#include <psring/worker/c/engine.h>

namespace psring::c {

class Messages;

/// Leaves before each message: the receiver matches it with a call.
struct Envelope {
  std::int64_t tag = 0;
  std::int64_t count = 0;
  std::int64_t type = 0;  ///< a DType
};

/// A receive in flight.
class Receive final : public Flight {
 public:
  struct Wanted {
    ring::Vector data;
    std::optional<std::size_t> from;  ///< none: any rank
    std::int64_t tag = 0;
  };

  Receive(std::weak_ptr<Messages> messages, const Wanted& call) : wanted(call), messages_(std::move(messages)) {}
  bool advance() override;
  std::string doing() override;

  const Wanted wanted;
  bool complete = false;
  std::size_t source = 0;  ///< once complete

 private:
  const std::weak_ptr<Messages> messages_;
};

/// Messages with tags over a group whose messages keep their order: a receive takes the first message with its tag,
/// from its rank or from any. A message of another tag that comes first is stored meanwhile. Guarded by the engine's
/// lock.
class Messages : public std::enable_shared_from_this<Messages> {
 public:
  /// REQUIRES: nobody else sends or receives messages on the group.
  explicit Messages(std::unique_ptr<ring::ProcessGroup> group);

  std::shared_ptr<Flight> send(ring::ConstVector data, std::size_t to, std::int64_t tag);
  std::shared_ptr<Flight> receive(ring::Vector data, std::optional<std::size_t> from, std::int64_t tag);
  /// Takes the messages that have arrived. Throws usage if a message has another type or count than its receive.
  void advance();

 private:
  struct Stored {
    Envelope envelope;
    std::vector<std::byte> payload;
  };
  /// The messages of one rank: at most one is on its way.
  struct Source {
    bool listens = false;  ///< for an envelope, then for its payload
    bool has_envelope = false;
    Envelope envelope;
    ring::Work work;
    std::shared_ptr<Receive> into;  ///< the receive that the payload belongs to; null: it is stored
    Stored storing;
    std::deque<Stored> stored;
  };

  bool is_wanted(std::size_t from) const;
  std::deque<std::shared_ptr<Receive>>::iterator find_wanted(std::int64_t tag, std::size_t from);
  bool advance(std::size_t from);
  void take_envelope(std::size_t from);
  void take_payload(std::size_t from);
  void require_match(const Envelope& envelope, const Receive& receive, std::size_t from) const;
  bool take_stored(Receive& receive);

  const std::unique_ptr<ring::ProcessGroup> group_;
  std::vector<Source> sources_;
  std::deque<std::shared_ptr<Receive>> receives_;  ///< without a message yet, in the order of the calls
};

}  // namespace psring::c
