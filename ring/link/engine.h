#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/common/base/clock.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/transport.h>
#include <psring/ring/link/options.h>
#include <psring/ring/link/thread.h>

namespace psring::ring {

/// The error that ended all groups of a transport. The rank that finds an error tells all others, so that every rank
/// throws the same line.
class LinkFailure {
 public:
  LinkFailure(net::Transport& transport, const Clock& clock, std::size_t rank, std::size_t ranks)
      : transport_(transport), clock_(clock), rank_(rank), ranks_(ranks) {}

  /// Ends all groups, here and at the other ranks. Does nothing if they have ended already.
  void break_off(const Error& error) noexcept;
  [[noreturn]] void end(const Error& error) {
    break_off(error);
    throw error;
  }
  /// The error that all ranks know.
  const std::optional<Error>& told() const { return told_; }

  /// The background thread, or an operation that is complete all the same, found an error; the owner's next call names
  /// its operation and tells the other ranks.
  void find(const Error& error) { found_ = error; }
  bool any() const { return told_ || found_; }
  /// Throws the error that all ranks know, or the error that was found.
  void rethrow() const {
    if (told_) throw *told_;
    if (found_) throw *found_;
  }
  /// Throws; tells the other ranks about an error that was found, with the operation that this rank was to start.
  void rethrow_and_tell(const std::string& doing) {
    if (told_) throw *told_;
    if (found_) end(found_->with_context(doing));
  }

 private:
  void let_words_leave();
  bool words_in_flight() const;

  net::Transport& transport_;
  const Clock& clock_;
  const std::size_t rank_;
  const std::size_t ranks_;
  std::optional<Error> found_;
  std::optional<Error> told_;
  std::string last_words_;  ///< the error line; the transport reads it after `send` has returned
};

class LinkEndpoint;
class LinkOperation;

/// The part that all groups of one transport share: it takes messages from the transport, hands each one to its group,
/// and waits for operations. All calls but `locked` itself run inside of `locked`.
class LinkEngine {
 public:
  LinkEngine(net::Transport& transport, std::size_t rank, std::size_t ranks, LinkOptions options);
  ~LinkEngine();
  LinkEngine(const LinkEngine&) = delete;
  LinkEngine& operator=(const LinkEngine&) = delete;

  net::Transport& transport() { return transport_; }
  /// Sends a frame of an operation. Returns the bytes that were sent to the peer so far, this frame's included: `left`
  /// takes this number.
  std::uint64_t send(net::Peer to, const net::FrameHeader& header, std::span<const std::byte> payload);
  /// Have the first `sent` bytes to the peer left? Bytes that were sent later do not matter.
  bool left(net::Peer to, std::uint64_t sent) const;
  const LinkOptions& options() const { return options_; }
  LinkFailure& failure() { return failure_; }
  /// Calls `body` while the background thread, if any, stands still.
  template <class Body>
  auto locked(Body body) {
    return thread_.locked(std::move(body));
  }

  void add(std::uint32_t group_id, LinkEndpoint& group);
  void remove(std::uint32_t group_id) { groups_.erase(group_id); }

  /// Takes all messages that have arrived, and advances all operations without waiting. Errors name the operation.
  void advance_for(const LinkOperation& operation);
  /// Waits until the operation is finished; every 20 ms it checks whether the peers live. Throws peer_lost or timeout.
  void wait_for(const LinkOperation& operation);
  /// The same without an operation, for an outer group that waits by itself.
  void take_all();
  void take_next(Moment deadline);

 private:
  void advance_all();
  bool take_message(Moment deadline);
  bool busy() const;

  net::Transport& transport_;
  const LinkOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  LinkFailure failure_;
  std::map<std::uint32_t, LinkEndpoint*> groups_;
  std::map<std::uint32_t, std::uint64_t> sent_bytes_;  ///< payloads of operations, by the worker that they went to
  std::vector<net::Message> homeless_;                 ///< for subgroups that this rank has not made yet
  LinkThread thread_;
};

}  // namespace psring::ring
