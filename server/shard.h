#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <psring/common/base/consistency.h>
#include <psring/common/base/elements.h>
#include <psring/common/base/memory_ledger.h>
#include <psring/common/base/parallel.h>
#include <psring/common/base/pieces.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/layout_message.h>
#include <psring/common/net/transport.h>
#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/loss_scaler.h>
#include <psring/optim/optimizer.h>
#include <psring/optim/schedule.h>
#include <psring/server/aggregator.h>
#include <psring/server/device_updates.h>
#include <psring/server/staleness.h>
#include <psring/server/verdict.h>

namespace psring::server {

/// What a shard is and does; constant for its life.
struct ShardOptions {
  std::uint32_t rank = 0;
  std::uint32_t servers = 1;
  std::uint32_t workers = 1;
  std::uint32_t pushers = 0;  ///< how many of them push in a step (--local-reduce: one a host); 0: all
  double lr = 0;
  double clip_norm = 0;                         ///< 0: no clipping
  optim::LossScaler loss_scaler;                ///< what workers scale their losses by
  bool master_copy = true;                      ///< of parameters narrower than f32; see optim::MixedRange
  const optim::Optimizer* optimizer = nullptr;  ///< null: answers with the aggregated gradient (--optimizer-on worker)
  const optim::Schedule* schedule = nullptr;    ///< null as the optimizer is
  const Aggregator* aggregator = nullptr;
  const optim::Codec* codec = nullptr;  ///< that gradients are pushed in; null: as they are
  std::uint64_t seed = 0;               ///< of the job, for the codec
  Consistency consistency = {};
  StalenessRemedy remedy = {};                      ///< where each push is an update
  std::size_t memory_bytes = std::size_t{1} << 36;  ///< a layout whose part here needs more is refused
  std::uint64_t first_version = 0;                  ///< that the job begins with
  /// What it begins with, of an array (optim/checkpoint/shard.h) of a unit's range; null: as the layout says.
  std::function<void(const UnitLayout&, Range, const std::string&, std::span<float>)> saved = {};
  std::uint64_t save_every = 0;  ///< steps after which it is asked for its part of a checkpoint; 0: it is not
  Device* device = nullptr;      ///< that adds up and updates (DeviceUpdates); null: the host
};

/// One server's ranges of all units: parameters in two versions, optimizer state, clocks, and the
/// gradients that wait for the rest of the workers. A pure state machine: frame in, replies out; no
/// sockets, no clock. Every piece has a version, the number of its updates; a push of step t leads to
/// version t + 1. Without clipping and layerwise rules a piece is updated as soon as its last gradient
/// is there; with them the whole step waits for a verdict (sums over all shards, added up by server 0). A unit that is
/// not trained stays in the version that the job begins with: it has no second copy, no state, and takes no push.
///
/// Where each push is an update (ssp, asp), a piece has a clock for each worker, and its version is their sum: a push
/// of step t is the worker's (t + 1)th, a pull for clock c waits until the slowest is near enough, and the answer is a
/// copy of one version. Who has left is no longer waited for.
///
/// Under bsp without backup workers a pull is answered with the very version that it names: a piece has that which it
/// is at and, once updated, the one before. A worker pushes step t only when it has all of version t, and nothing gets
/// to t + 1 before all workers have pushed step t. So whenever processes are lost, all pieces of all shards are at t or
/// t + 1, and t is still everywhere: in a new membership epoch all workers go on from t, and what is at t + 1 takes
/// their pushes of step t as repeats.
class Shard {
 public:
  Shard(const ShardOptions& options, Parallel& parallel, MemoryLedger& ledger);

  /// Handles a frame and appends what is to be sent. A frame that the protocol does not allow changes
  /// nothing and is answered with `failed`. A repeated push is acknowledged, not applied. A worker waits for
  /// one version of a piece at a time: what it asks for anew takes the place of what it asked for before.
  /// Throws protocol where another server says `failed`: the step can never be completed. No `failed` is
  /// answered, so that two servers cannot go on answering each other.
  void on_message(net::Message message, std::vector<net::Outgoing>& replies);

  /// A process of the job was lost, all links are new: forgets what was not complete (pushes and questions that wait,
  /// a verdict's round, what was to be saved), and keeps versions and clocks. The job has so many workers from now on.
  /// REQUIRES: an optimizer here, and none that is layerwise: it changes its state before the step is known to be done;
  /// another number of workers only where each of them pushes for itself, and under Consistency::exact.
  void begin_epoch(std::uint32_t workers);

  /// All that this shard has, as frames to its follower: each piece's arrays, then what belongs to no piece. Payloads
  /// lie in the shard. REQUIRES: no message since it was made, or since begin_epoch; an optimizer; Consistency::exact.
  void snapshot(net::Peer to, std::vector<net::Outgoing>& out);
  /// Takes a frame of the snapshot of a shard of the same rank; true with the last one. Throws protocol and data where
  /// it is none of such.
  bool restore(const net::Message& message);

  /// A version that it was asked to save, once all pieces have it, and the workers' own parts are written. Who runs the
  /// shard then writes `state` and says so, before the next message.
  std::optional<std::uint64_t> save_due() const;
  std::vector<optim::StatePart> state();
  void saved(std::vector<net::Outgoing>& replies);

  /// Updates that every piece has seen.
  std::uint64_t version() const;
  /// Of each worker's gradients, where each push is an update: those of the time in which all workers were at it, as
  /// who has left makes no others' gradients stale. With backup workers it counts which gradients came too late.
  const std::vector<StalenessRecord>& staleness() const { return staleness_; }
  /// "334336 of 668672 parameters in 6 units", once a layout is known.
  std::string describe() const;
  std::size_t elements() const { return elements_; }

 private:
  struct Waiter {
    net::Peer peer;
    net::FrameHeader header;
    std::span<std::byte> space;  ///< the peer's own memory, where the transport has it
    std::shared_ptr<const void> holder;
    bool stored = false;  ///< the version that it waits for stands in `space` already
  };
  struct Slot {
    Piece piece;
    std::uint64_t version = 0;
    bool initialised = false;
    /// Of one micro-batch, by worker.
    struct Pushed {
      std::size_t count = 0;
      std::vector<std::optional<net::Message>> by_worker;
    };
    std::vector<Pushed> pushes;  ///< of the step under way, by micro-batch
    std::size_t micro = 0;       ///< the first whose pushes are not all there; those before are in the mean
    std::vector<Waiter> waiters;
    /// Where each push is an update, by worker.
    struct Progress {
      std::uint64_t clock = 0;  ///< steps whose gradients are in
      std::uint64_t given = 0;  ///< the version that it has
      Staleness last;           ///< of its last gradient
    };
    std::vector<Progress> workers;
  };

  void handle(net::Message message, std::vector<net::Outgoing>& replies);
  void on_layout(const net::Message& message, std::vector<net::Outgoing>& replies);
  void take_layout(net::LayoutMessage layout);
  net::Outgoing layout_ok(const net::FrameHeader& asked) const;
  std::uint64_t goes_on_at(std::uint32_t worker) const;
  void load_saved();
  std::size_t bytes_for(const Layout& layout) const;
  std::size_t book_bytes(const Layout& layout) const;
  bool keeps_master(const Layout& layout) const;
  void on_initial(const net::Message& message, std::vector<net::Outgoing>& replies);
  void on_push(net::Message message, std::vector<net::Outgoing>& replies);
  void copy_payload(net::Message& message);
  void decode_payload(net::Message& message);
  void hold(std::vector<std::byte> bytes, net::Message& message);
  void on_pull(net::Message& message, std::vector<net::Outgoing>& replies);
  void on_save(const net::FrameHeader& header);
  void on_saved(const net::FrameHeader& header);
  void on_leave(const net::FrameHeader& header, std::vector<net::Outgoing>& replies);
  void on_total(const Verdict::Sums& total, std::vector<net::Outgoing>& replies);

  void begin_with(const Slot& slot, std::span<const float> start);
  void check_worker(const net::FrameHeader& header) const;
  Slot& find(const net::Message& message);
  Slot& slot_of(const net::FrameHeader& header);
  Elements part_of_state(const Slot& slot, std::uint64_t version, std::uint32_t array);
  void restore_end(const net::Message& message);
  void check_there(const Slot& slot, std::uint64_t wanted) const;
  static void wait(Slot& slot, Waiter waiter);
  static void forget_pushes(Slot& slot);
  bool micro_complete(const Slot& slot) const;
  bool kept_for_checkpoint(std::uint64_t version) const;
  void complete(Slot& slot, std::vector<net::Outgoing>& replies);
  void count_push(Slot& slot, std::size_t worker);
  std::uint64_t slowest(const Slot& slot) const;
  void update_now(Slot& slot);
  void compensate(const Slot& slot, Range part, Elements gradient);
  void add_to_mean(Slot& slot);
  void contribute(const Verdict::Sums& sums, std::vector<net::Outgoing>& replies);
  void apply_all(std::vector<net::Outgoing>& replies);
  void scale_all(const Verdict::Sums& total, std::vector<net::Outgoing>& replies);
  bool trained(const Slot& slot) const { return layout_.layout.units[slot.piece.unit].trained; }
  void for_each_trained(const auto& body) {
    for (Slot& slot : slots_)
      if (trained(slot)) body(slot);
  }
  void finish_version(Slot& slot, std::vector<net::Outgoing>& replies);
  void answer_waiters(Slot& slot, std::vector<net::Outgoing>& replies);

  bool by_verdict() const;
  bool keeps_mean(const Layout& layout) const { return by_verdict() || layout.pushes > 1; }
  /// Where each push is an update workers clip what they push.
  bool by_sum() const {
    return (options_.clip_norm > 0 && !options_.consistency.each_push_updates) || options_.loss_scaler.active();
  }
  void skip_all(std::vector<net::Outgoing>& replies);
  Verdict::Sums square_sums();
  Verdict::Sums layerwise_sums();
  optim::Update update_for(const Slot& slot) const;
  Elements given(const Slot& slot, std::size_t worker);
  Elements values(const Slot& slot, std::uint64_t version);
  Elements mean(const Slot& slot);
  std::span<float> master(const Slot& slot, Range part);
  std::span<float> weights(const Slot& slot);
  optim::Optimizer::State state(const Slot& slot, Range part);
  void apply(const Slot& slot, Range part, ConstElements gradient, Elements out);
  /// Of what is trained here, as the device has it.
  static Range on_device(const Slot& slot) { return {slot.piece.offset, slot.piece.offset + slot.piece.range.size()}; }
  void aggregate_on_device(const Slot& slot, std::size_t micro);

  ShardOptions options_;
  Parallel& parallel_;
  MemoryLedger& ledger_;

  std::vector<std::byte> layout_bytes_;  ///< as the first worker sent it: the others must say the same
  net::LayoutMessage layout_;
  std::size_t elements_ = 0;
  std::vector<Slot> slots_;
  std::optional<net::FrameHeader> save_;                         ///< that was asked for, and is not answered yet
  std::map<std::uint32_t, std::uint64_t> written_;               ///< by worker: the last version it has written of
  std::vector<std::pair<std::size_t, std::size_t>> unit_slots_;  ///< for each unit: its slots [first, last)
  std::size_t updates_due_ = 0;                                  ///< trained slots: a step updates so many
  /// Version v is in parameters_[v % 2], but all of what is not trained in [0], after the rest; with the optimizer
  /// elsewhere, [0] is the mean. Places are those of pieces, in what only trained units have, too.
  Buffer parameters_[2];
  std::unique_ptr<DeviceUpdates> device_;  ///< has master_, state_ and mean_, where there is one
  Buffer master_;                          ///< of parameters narrower than f32
  Buffer state_[optim::Optimizer::kMaxSlots];
  /// Where updates do not wait for all workers, by worker: the values that it was given last, of trained units. For a
  /// remedy that asks for them, and for answers that leave late: a version's memory is written again two updates later,
  /// and who asks again has what it was sent. Empty of a worker for whom neither is the case.
  std::vector<Buffer> given_;
  std::vector<bool> left_;         ///< by worker
  std::optional<std::size_t> of_;  ///< whose gradient the update under way takes, where it takes one
  std::vector<StalenessRecord> staleness_;
  std::deque<OnHost> saved_;  ///< what of a device `state` gave last
  Buffer mean_;  ///< with several micro-batches, or a verdict: the step's mean gradient, then a layerwise direction
  std::size_t aggregated_ = 0;  ///< slots whose mean is there
  Verdict verdict_;
  bool summing_ = false;  ///< the round under way is that of the gradients' norm, not the layerwise rule's
  optim::LossScaler scaler_;
  bool skipped_ = false;  ///< the last step was
  float gradient_scale_ = 1;
};

}  // namespace psring::server
