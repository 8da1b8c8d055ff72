#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/parallel.h>
#include <psring/common/net/outbox.h>
#include <psring/common/net/transport.h>
#include <psring/optim/checkpoint/shard.h>
#include <psring/server/clocks.h>
#include <psring/server/pulls.h>
#include <psring/server/push_payload.h>
#include <psring/server/rounds.h>
#include <psring/server/shard_options.h>
#include <psring/server/step_verdict.h>
#include <psring/server/store/applier.h>
#include <psring/server/store/save_request.h>
#include <psring/server/store/store.h>
#include <psring/server/table_shard.h>

namespace psring::server {

/// One server's ranges of all units, and the protocol around them. A pure state machine: a frame in, answers out; no
/// sockets, no clock. Composed of parts, each with its own header: Store (values and versions), Rounds (pushes of the
/// step), Clocks (ssp, asp), StepVerdict (clipping, loss scale, layerwise rules), Applier (the optimizer),
/// WaitingPulls, AnswerCopies, SaveRequest, TableShard (rows). Only the protocol knows more than one part.
///
/// Each piece has a version, the number of its updates. A push of step t leads to version t + 1. A piece is updated as
/// soon as its last gradient is there; if the updates need sums over all shards, the whole step waits for a verdict. A
/// unit that is not trained stays at its first version, and takes no push.
///
/// Under ssp and asp each push is an update. A piece has a clock for each worker, and its version is their sum. A push
/// of step t is the worker's (t + 1)th. A pull for clock c waits until the slowest worker is near enough, and is
/// answered with a copy of one version. No process waits for a worker that has left.
///
/// Under bsp without backup workers a pull is answered with the version that it names: the current one, or the one
/// before. A worker pushes step t only when it has all of version t, and no piece gets to t + 1 before all workers have
/// pushed step t. So whenever processes are lost, all pieces of all shards are at t or t + 1, and t is still
/// everywhere. In a new membership epoch all workers continue from t. A piece at t + 1 treats their pushes of step t as
/// repeated.
class Shard {
 public:
  /// REQUIRES: parallel, ledger, and everything that the options point to outlive the shard.
  Shard(const ShardOptions& options, Parallel& parallel, MemoryLedger& ledger);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  /// Handles a frame and appends the frames to be sent. A frame that the protocol does not allow changes nothing and is
  /// answered with `failed`. A repeated push is acknowledged, not applied. A worker waits for one version of a piece at
  /// a time: a new request replaces the older one. Throws protocol if another server says `failed`: the step can never
  /// be completed. A `failed` frame is never answered, so that two servers cannot go on answering each other.
  void on_message(net::Message message, std::vector<net::Outgoing>& replies);

  /// Begins a new membership epoch with `workers` workers: a process of the job was lost, and all links are new.
  /// Forgets all that is not complete (pushes and pulls that wait, a verdict's round, a request to save), and keeps
  /// versions and clocks. REQUIRES: an optimizer here that is not layerwise, since a layerwise rule changes its state
  /// before the step is known to be done; another number of workers only if each pushes for itself, and under
  /// Consistency::exact; with tables, ShardOptions::keeps_old_rows.
  void begin_epoch(std::uint32_t workers);

  /// Appends the shard's whole state, as frames to its follower: the arrays of each piece, then the state that belongs
  /// to no piece. The payloads lie in the shard. REQUIRES: no message came since the shard was made, or since
  /// begin_epoch; an optimizer; Consistency::exact.
  void snapshot(net::Peer to, std::vector<net::Outgoing>& out);
  void follow() { tables_.follow(); }  ///< until begin_epoch this is a follower's shard, whose answers are dropped
  /// Takes a frame of the snapshot of a shard of the same rank. Returns true with the last one. Throws protocol and
  /// data if the frame cannot be part of a snapshot.
  bool restore(const net::Message& message);

  /// The version to be saved now, if there is one: worker 0 asked for it, all pieces have it, and the workers' own
  /// parts are written. The caller then writes `state` and calls `saved`, before the next message.
  std::optional<std::uint64_t> save_due() const;
  /// The values and the optimizer state of all pieces. The parts refer to memory of the shard, until the next call.
  std::vector<optim::StatePart> state();
  void saved(std::vector<net::Outgoing>& replies);

  /// Moves a message's payload into memory of the shard: its sender may overwrite it before the shard has used it.
  void keep(net::Message& message) const { copy_payload(message, ledger_); }

  /// Updates that every trained piece, and every piece of a table, has had.
  std::uint64_t version() const { return least_version().value_or(0); }
  /// By worker, of units and tables; see Clocks::records. With backup workers it counts gradients that came too late.
  std::vector<StalenessRecord> staleness() const;
  /// "334336 of 668672 parameters in 6 units, 1200 rows of tables", once a layout is known.
  std::string describe() const;
  std::size_t elements() const { return store_.elements(); }
  bool opened() const { return elements() > 0 || !tables_.empty(); }  ///< has a layout come?
  const TableShard& tables() const { return tables_; }

 private:
  using Answers = std::vector<net::Outgoing>;

  // One function for each type of frame. Each throws protocol if the frame is not allowed.
  void handle(net::Message message, Answers& answers);
  void on_layout(const net::Message& message, Answers& answers);
  void on_initial(const net::Message& message, Answers& answers);
  void on_pull(net::Message& message, Answers& answers);
  void on_leave(const net::FrameHeader& header, Answers& answers);
  void on_save(const net::FrameHeader& header);
  void on_saved(const net::FrameHeader& header);
  void on_verdict(const net::Message& message, Answers& answers);
  void check_tables(const net::FrameHeader& header) const;

  std::size_t find(const net::FrameHeader& header) const;
  std::size_t check_request(const net::Message& message) const;
  void check_version(std::size_t piece, std::uint64_t wanted) const;
  void open(net::LayoutMessage layout);
  std::optional<std::uint64_t> least_version() const;
  net::Outgoing layout_ok(const net::FrameHeader& asked) const;
  void begin_with(std::size_t piece, std::span<const float> values);
  void load_saved();
  void answer_pulls(std::size_t piece, Answers& answers);
  net::Outgoing answer(std::size_t piece, const WaitingPull& pull);

  // Pushes and updates (shard_push.cpp).
  void on_push(net::Message message, Answers& answers);
  std::size_t check_push(const net::Message& message) const;
  bool is_repeated(std::size_t piece, const net::FrameHeader& push) const;
  void answer_repeated_push(std::size_t piece, const net::FrameHeader& push, Answers& answers);
  void take_push(std::size_t piece, net::Message push, Answers& answers);
  void acknowledge(std::size_t piece, const net::FrameHeader& push, Answers& answers) const;
  void acknowledge_all(std::size_t piece, Answers& answers) const;
  std::vector<ConstElements> gradients(std::size_t piece);
  void complete_micro(std::size_t piece, Answers& answers);
  void update(std::size_t piece);
  optim::Update terms(std::size_t piece) const;
  using Source = std::source_location;
  void tell_aggregate(std::size_t piece, Source source = Source::current()) const;
  void tell_update(std::size_t piece, Source source = Source::current()) const;
  void begin_verdict(Answers& answers);
  void carry_out(const StepVerdict::Decision& decision, Answers& answers);
  void finish_update(std::size_t piece, Answers& answers);

  // State (shard_state.cpp).
  Elements array_of(std::size_t piece, std::uint64_t version, std::uint32_t array);

  ShardOptions options_;
  Parallel& parallel_;
  MemoryLedger& ledger_;
  std::vector<std::byte> layout_bytes_;  ///< the first worker's; empty: no layout yet. Other workers must send the same
  net::Peer layout_from_;                ///< the worker that sent it
  Store store_;
  Rounds rounds_;
  Clocks clocks_;
  StepVerdict step_;
  WaitingPulls pulls_;
  PushPayloads pushed_;
  AnswerCopies copies_;
  SaveRequest save_;
  TableShard tables_;
  std::unique_ptr<Applier> applier_;               ///< null: no layout yet
  std::deque<std::vector<float>> decoded_states_;  ///< the 8-bit state that `state` returned last
  std::deque<OnHost> saved_arrays_;                ///< host copies of a device's arrays that `state` returned last
};

}  // namespace psring::server
