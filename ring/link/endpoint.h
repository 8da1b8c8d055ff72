#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <psring/common/net/transport.h>
#include <psring/ring/link/engine.h>
#include <psring/ring/link/operation.h>

namespace psring::ring {

/// One rank's end of a group: the operations in flight, and the messages to and from the group's ranks. All calls run
/// inside of LinkEngine::locked, except `start` and `moved`, which lock by themselves.
class LinkEndpoint {
 public:
  /// `members`: the group's ranks among the workers of the transport; `names`: their ranks in errors, or empty; `rank`:
  /// this rank's place among the members.
  LinkEndpoint(std::shared_ptr<LinkEngine> engine, std::uint32_t id, std::vector<std::uint32_t> members,
               std::vector<std::size_t> names, std::size_t rank);
  ~LinkEndpoint();
  LinkEndpoint(const LinkEndpoint&) = delete;
  LinkEndpoint& operator=(const LinkEndpoint&) = delete;

  LinkEngine& engine() const { return *engine_; }
  std::shared_ptr<LinkEngine> shared_engine() const { return engine_; }
  std::size_t rank() const { return rank_; }
  std::size_t size() const { return members_.size(); }
  const std::vector<std::uint32_t>& members() const { return members_; }
  net::Peer peer(std::size_t rank) const { return {net::Role::worker, members_[rank]}; }
  /// A rank as errors name it.
  std::size_t name(std::size_t rank) const { return names_.empty() ? rank : names_[rank]; }

  Work start(const Request& request, Plan plan);
  Moved moved() const;

  /// Returns the number that LinkEngine::send returns.
  std::uint64_t send_frame(const LinkOperation& operation, std::size_t to, Range range,
                           std::span<const std::byte> payload);
  /// Tells the rank that an operation waits for which operation this rank waits in. Two ranks that wait for each other
  /// in different operations would never find out otherwise.
  void probe(const LinkOperation& operation);
  void probe_oldest() {
    if (!operations_.empty()) probe(*operations_.front());
  }

  /// Takes a message that arrived for this group.
  void arrived(net::Message message);
  /// The memory that a payload is received into; empty if the transport has to use its own.
  std::span<std::byte> place(const net::FrameHeader& header);
  void step();
  bool idle() const { return operations_.empty(); }

 private:
  std::uint64_t next_number(const Request& request);
  Work launch(std::shared_ptr<LinkOperation> operation);
  std::size_t rank_of(net::Peer peer) const;
  LinkOperation* find(const net::FrameHeader& header, std::size_t from) const;
  void check_call(const LinkOperation& operation, std::size_t from, const net::FrameHeader& header);
  net::FrameHeader header_of(const LinkOperation& operation) const;

  const std::shared_ptr<LinkEngine> engine_;  ///< shared by the groups of a transport; the last one ends it
  const std::uint32_t id_;
  const std::vector<std::uint32_t> members_;
  const std::vector<std::size_t> names_;
  const std::size_t rank_;
  std::uint64_t collectives_ = 0;                           ///< called so far
  std::vector<std::uint64_t> sent_messages_;                ///< to each rank
  std::vector<std::uint64_t> received_messages_;            ///< from each rank
  std::vector<std::shared_ptr<LinkOperation>> operations_;  ///< in flight; shared with their handles
  std::vector<net::Message> early_;                         ///< for operations that this rank has not called yet
  Moved moved_;
};

}  // namespace psring::ring
