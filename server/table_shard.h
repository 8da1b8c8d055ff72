#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <psring/common/device/buffer.h>
#include <psring/common/net/layout_message.h>
#include <psring/common/net/outbox.h>
#include <psring/common/net/row_marks.h>
#include <psring/common/net/transport.h>
#include <psring/optim/checkpoint/shard.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/server/clocks.h>
#include <psring/server/shard_options.h>

namespace psring::server {

/// The part of a shard that has the rows of tables. A piece is a range of buckets with a version, the number of
/// its updates. A worker's rows_pull of step t brings the keys, frame by frame, in order; the piece answers at version
/// t. The gradients come without keys, in the same frames. Once every worker has pushed all frames of the piece, the
/// piece makes update t + 1: each key of any worker gets the sum in worker order, times 1/n. A pull changes nothing: a
/// key without a row has its initial values. Pulls for reading (kStartUp) are answered alike, and no gradients follow.
/// Under ssp and asp each worker's push of a piece is an update by its own gradients, and t is the worker's clock.
///
/// With TableLayout::lookahead a worker pulls the rows of later steps before it pushes those of this one. Under bsp
/// such a pull (kAhead) is answered in two parts. Once all workers have pulled the step before, the shard knows which
/// keys it trains; the rows of other keys are answered at once, as they will not change, and the rest after the update.
/// Which rows are early depends on the keys alone, never on timing.
///
/// Programs that do not know a step's keys at its beginning send unpaired frames (kUnpaired): any number of pulls that
/// are only answered, and then pushes that bring the keys of the step's gradients, and the learning rate. A worker has
/// pulls of one version in flight one after the other. With kStartUp, such a push assigns values instead. Such pushes
/// may follow no pull, where ssp's bound would not hold: they are for bsp and asp.
///
/// A pure state machine; every function throws protocol if the frame is not allowed, and then has changed nothing.
/// Memory that a worker can make it hold is bounded: keys of optim::kept_steps of TableLayout::most_keys each, of one
/// more with unpaired frames (the pulls of two versions and the pushes of a step), and rows by the host's memory.
class TableShard {
 public:
  using Answers = std::vector<net::Outgoing>;

  /// The bookkeeping of a piece of a table, in bytes, with one frame of each step that a worker may have in it.
  static std::size_t piece_bytes(const TableLayout& table, std::size_t workers);

  /// REQUIRES: options and ledger outlive it.
  TableShard(const ShardOptions& options, MemoryLedger& ledger) : options_(options), ledger_(ledger) {}
  TableShard(const TableShard&) = delete;
  TableShard& operator=(const TableShard&) = delete;
  ~TableShard();

  /// Makes the tables of this server's buckets. REQUIRES: called once, with a layout that check_layout accepts.
  void open(const net::LayoutMessage& description);
  bool empty() const { return tables_.empty(); }
  /// The least version of all pieces; nothing without tables.
  std::optional<std::uint64_t> version() const;
  /// True once every piece has had `version` updates.
  bool at(std::uint64_t version) const { return this->version().value_or(version) == version; }
  /// Reads the rows of the checkpoint that the job begins with. Throws data, naming the file.
  void load_saved();
  /// The rows of all tables, for a checkpoint; valid until the next message.
  std::vector<optim::TablePart> state() const;
  /// Rows of all tables that were trained.
  std::size_t rows() const;

  /// Begins a new membership epoch, with new links: forgets frames that wait, and keeps rows, versions, and what the
  /// last update changed (ShardOptions::keeps_old_rows). Workers then repeat the step that led to the last version of
  /// some pieces. ShardOptions::workers may be fewer than before: later updates are means over that many.
  void begin_epoch();
  /// From now until begin_epoch, this is the shard of a follower: it keeps the keys of pulls, and answers none.
  void follow() { follows_ = true; }
  /// Appends the whole state, as frames to the follower. REQUIRES: no message came since begin_epoch.
  void snapshot(net::Peer to, Answers& out) const;
  /// True for the frames of a snapshot that `restore` takes.
  static bool has_state(const net::FrameHeader& header);
  /// Takes a frame of a snapshot. Throws protocol if it cannot be part of one.
  void restore(const net::Message& message);

  // REQUIRES, for both: the sender is a worker of the job.
  void on_pull(const net::Message& message, Answers& answers);
  void on_push(net::Message message, Answers& answers);
  /// The worker pushes nothing more (ssp, asp).
  void leave(std::size_t worker, Answers& answers);
  /// Adds the staleness of the workers' gradients. `records`: by worker.
  void add_staleness(std::vector<StalenessRecord>& records) const;

 private:
  /// Keys that a worker pulled with one frame, and their gradients once they have come.
  struct PulledFrame {
    Range buckets;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> counts;  ///< occurrences of each key, if a rule counts them
    std::vector<std::uint32_t> places;  ///< of the rows, as they were read
    std::optional<net::Message> gradients;
  };
  /// A worker's frames of one step for one piece.
  struct Pulled {
    std::uint64_t step = 0;
    std::vector<PulledFrame> frames;  ///< they tile the piece
    std::size_t next = 0;             ///< bucket that the next frame begins with
    std::size_t pushed = 0;           ///< frames with gradients
    std::uint64_t sent = 0;           ///< version of the rows that the worker was sent
    std::optional<float> lr;          ///< of unpaired pushes
  };
  struct WaitingRows {
    net::FrameHeader asked;
    std::span<const std::uint64_t> keys;
    std::vector<std::uint64_t> own_keys;  ///< of a pull for reading
    std::span<std::uint32_t> places;      ///< of the rows, to be written; empty for a pull for reading
    std::span<std::byte> memory;          ///< for the answer, the worker's own if this server has access to it
    std::shared_ptr<const void> holder;   ///< keeps that memory mapped
    bool reads = false;                   ///< no gradients follow
    bool ahead = false;                   ///< it is answered in two parts, and the first is not sent yet
    std::vector<std::uint64_t> late;      ///< keys of the second part
    net::Marks here;                      ///< bits of the keys whose rows are not asked for (kCached)
    std::size_t sent = 0;                 ///< bytes of its memory
  };
  struct Piece {
    std::size_t number = 0;
    Range buckets;
    std::uint64_t version = 0;
    std::vector<std::vector<Pulled>> workers;  ///< at most optim::kept_steps each
    std::vector<WaitingRows> waiting;
    std::optional<std::vector<std::uint64_t>> trained;  ///< by the next update, if somebody has asked
    optim::OldRows old;                                 ///< of the last update
  };
  /// Answers to a worker's batches, one after the other.
  struct Lane {
    Buffer answers;        ///< rows on their way to a worker whose memory this server has no access to
    std::size_t rows = 0;  ///< of the batch that was asked for last, so far
    std::uint64_t batch_step = 0;
    std::uint8_t batch_flags = 0;
  };
  /// The memory that a table keeps for one worker.
  struct WorkerMemory {
    std::size_t keys = 0;    ///< in lists and in waiting pulls
    std::size_t pushed = 0;  ///< keys of the unpaired pushes of step `pushed_step`
    std::uint64_t pushed_step = 0;
    std::vector<Lane> lanes;  ///< of pulls by version; of unpaired pulls of even and of odd versions
    Buffer listed;            ///< the answer to the last pull with kListed
  };
  struct Table {
    TableLayout layout;
    const optim::TableRule* rule = nullptr;
    std::unique_ptr<optim::TableRows> rows;
    std::vector<Piece> pieces;
    std::unique_ptr<Consistency> consistency;  ///< with ssp's bound as far as rows are pulled ahead
    std::unique_ptr<Clocks> clocks;
    std::vector<WorkerMemory> workers;
    bool unpaired = false;  ///< unpaired frames have come
  };

  void set_workers(Table& table);
  void book_keys();
  Table& table_of(const net::FrameHeader& header);
  Table& find_table(const net::FrameHeader& header);
  static Piece& find_piece(Table& table, const net::FrameHeader& header);
  PulledFrame read_keys(const Table& table, const Piece& piece, const net::FrameHeader& header,
                        std::span<const std::byte> bytes, bool counted) const;
  static std::uint64_t due(const Table& table, const Piece& piece, std::size_t worker);
  static PulledFrame& keep(Piece& piece, const net::FrameHeader& header, std::uint64_t first, PulledFrame pulled);
  void answer(Table& table, Piece& piece, Answers& answers);
  std::span<std::byte> answer_memory(const Table& table, WorkerMemory& own, Lane& lane, Range rows);
  bool is_exact() const { return !options_.row_consistency.each_push_updates; }
  static bool knows_trained(const Piece& piece);
  static const std::vector<std::uint64_t>& trained_keys(Piece& piece);
  net::Outgoing answer_early(const Table& table, Piece& piece, WaitingRows& pull) const;
  std::span<std::byte> read_rows(const Table& table, const Piece& piece, WaitingRows& pull,
                                 std::span<const std::uint64_t> keys) const;
  bool is_old(const Piece& piece, const net::FrameHeader& header) const;
  net::Outgoing answer_to_pull(const Table& table, const Piece& piece, WaitingRows& pull) const;
  void list(Table& table, const Piece& piece, const net::Message& message, Answers& answers);
  void begin_unpaired(Table& table);
  void on_unpaired_push(Table& table, Piece& piece, net::Message message, Answers& answers);
  void assign(Table& table, const Piece& piece, const net::Message& message, Answers& answers);
  static bool has_pushed(const std::vector<Pulled>& lists, const Piece& piece);
  static bool complete(const Piece& piece);
  void use_pushes(Table& table, Piece& piece, std::size_t worker, Answers& answers);
  void update(Table& table, Piece& piece, Range workers, Answers& answers);

  const ShardOptions& options_;
  MemoryLedger& ledger_;
  std::size_t units_ = 0;
  std::size_t owners_ = 1;
  std::vector<Table> tables_;
  std::size_t booked_ = 0;      ///< for lists of keys
  std::size_t booked_old_ = 0;  ///< for old rows
  bool follows_ = false;
};

}  // namespace psring::server
