#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/net/frame.h>
#include <psring/ring/call.h>
#include <psring/ring/process_fence.h>
#include <psring/ring/shm_group.h>
#include <psring/ring/split.h>

namespace psring::ring {
namespace {

/// Turns of waiting before a rank yields, and for how long it does before it sleeps. With more ranks than processors
/// the one that is waited for may need this very processor: then a rank yields almost at once. (Measured with 4 ranks
/// on 2 processors, 64 KiB: 24 us so, 27 with 64 turns, 115 where it sleeps instead of yielding.)
constexpr unsigned kPauses = 64;
constexpr unsigned kCrowdedPauses = 4;
constexpr Nanoseconds kYieldFor = std::chrono::microseconds(100);
constexpr Nanoseconds kSleep = std::chrono::milliseconds(20);  ///< then it looks whether the peers live

std::size_t processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set)) : 1;
}

constexpr std::array<Collective, kShmKinds> kCollectives = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
    Collective::barrier,    Collective::send,           Collective::recv};

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

class ShmGroup;

/// One operation. Posting it, waiting until all have posted, and what follows in `step`.
class ShmOperation final : public Operation {
 public:
  /// `call`: what is done; `outer`: what ranks are told of it instead.
  ShmOperation(ShmGroup& group, std::uint64_t number, const Call& call, const std::optional<Announced>& outer,
               Vector data, ReduceOp op, const Parts* parts);

  bool advance() override;
  void wait() override;
  std::size_t awaited() const override;

  const Announced& said() const { return said_; }
  bool finished() const { return finished_; }
  /// What is next, as far as it goes without waiting. REQUIRES: operations before it are finished.
  bool step();

 private:
  enum class Way : std::uint8_t { none, slots, direct, shared, staged };

  ShmPost& post_of(std::size_t rank) const;
  /// Where a rank's vector lies that is small enough.
  std::byte* slot_of(std::size_t rank) const;
  bool all_posted();
  Way choose_way() const;
  bool all_ticked(std::uint64_t ticks) const;
  void tick();
  Range chunk(std::size_t rank, Range whole) const;
  std::byte* address(std::size_t rank, Range slice) const;
  void perform(std::size_t owner, Range slice);
  void reduce_parts(std::size_t owner, Range slice);
  void reduce_range(std::size_t owner, Range range, Range slice);
  void copy(std::size_t owner, std::size_t from, Range range, Range slice);
  std::size_t missing() const;
  bool step_direct();
  bool step_shared();
  bool step_staged();
  template <class Function>
  void for_each_staged(Range slice, Function function) const;
  void stage_in(Range slice);
  void stage_out(Range slice);
  std::byte* target(std::size_t rank, Range range) const;
  Range slice(std::size_t index) const;

  ShmGroup& group_;
  const std::uint64_t number_;
  const Call call_;
  const Announced said_;
  const Vector data_;
  const ReduceOp op_;
  Parts parts_;
  Way way_ = Way::none;
  bool finished_ = false;
  std::uint64_t first_tick_ = 0;
  std::size_t iteration_ = 0;  ///< of a staged one; of a direct one 1 once it is performed
  std::size_t posted_ = 0;     ///< ranks, from the first on, that are known to have posted it
};

/// A message to or from one rank.
class ShmMessage final : public Operation {
 public:
  ShmMessage(ShmGroup& group, std::uint64_t number, const Call& call, std::byte* data, std::size_t from, std::size_t to)
      : group_(group), number_(number), call_(call), data_(data), from_(from), to_(to) {}
  ~ShmMessage() override;

  bool advance() override;
  void wait() override;
  std::size_t awaited() const override;
  bool step();
  bool finished() const { return finished_; }
  Announced said() const { return {call_, number_}; }

 private:
  bool step_send();
  bool step_recv();

  ShmGroup& group_;
  const std::uint64_t number_;  ///< among those of this pair and direction
  const Call call_;
  std::byte* const data_;
  const std::size_t from_;
  const std::size_t to_;
  bool posted_ = false;
  bool finished_ = false;
  std::span<std::byte> copy_;  ///< in the arena, of a vector that lies elsewhere
};

class ShmGroup final : public InnerGroup {
 public:
  /// `members`: the ranks of the world that the group is made of; `names`: what they are called, or none;
  /// `next_group`: of all groups of this rank.
  ShmGroup(const ShmWorld& world, std::vector<std::size_t> members, std::vector<std::size_t> names, std::size_t id,
           GroupOptions options, std::shared_ptr<std::uint32_t> next_group)
      : world_(world),
        members_(std::move(members)),
        names_(std::move(names)),
        rank_(static_cast<std::size_t>(std::find(members_.begin(), members_.end(), world.rank) - members_.begin())),
        id_(id),
        options_(std::move(options)),
        control_(world.control->data(), world.size(), id, members_),
        bells_(world.control->data(), world.size(), 0, members_),
        next_group_(std::move(next_group)),
        crowded_(world.size() > processors()),
        staging_(world.arena->allocate(2 * kShmSliceBytes)),
        sent_(members_.size(), 0),
        received_(members_.size(), 0) {
    if (join_process_fences()) bell().fences.store(1, std::memory_order_relaxed);
  }
  ~ShmGroup() override { world_.arena->free(staging_); }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return members_.size(); }
  Arena* arena() override { return world_.arena.get(); }
  std::byte* reach(std::size_t rank, std::uint64_t mark) override {
    check_rank(rank, size());
    check(mark > 0 && mark <= capacity(rank), "rank {} has no memory at {}", rank, mark);
    return base(rank) + (mark - 1);
  }

  Work all_reduce(Vector data, const ReduceOp& op) override {
    op.require_meaning(data.type);
    return start({Collective::all_reduce, op.kind(), data.type, 0, data.count, fingerprint(op)}, data, op);
  }
  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) override {
    op.require_meaning(data.type);
    check_parts(parts, data.count, size());
    return start(
        {Collective::reduce_scatter, op.kind(), data.type, 0, data.count, fingerprint(op) ^ fingerprint(parts)}, data,
        op, &parts);
  }
  Work all_gather(Vector data, const Parts& parts) override {
    check_parts(parts, data.count, size());
    return start({Collective::all_gather, {}, data.type, 0, data.count, fingerprint(parts)}, data, {}, &parts);
  }
  Work broadcast(Vector data, std::size_t root) override {
    check_rank(root, size());
    return start({Collective::broadcast, {}, data.type, static_cast<std::uint32_t>(root), data.count, 0}, data, {});
  }
  Work barrier() override { return start({}, {}, {}); }
  Work send(ConstVector data, std::size_t to) override {
    // Only read, but one class serves both directions.
    return message(data.count, data.type, const_cast<std::byte*>(data.data), rank_, to);
  }
  Work recv(Vector data, std::size_t from) override { return message(data.count, data.type, data.data, from, rank_); }

  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) override;
  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    const char* way = count * type.bytes() <= kShmCopiedBytes ? "through slots" : "direct";
    return fmt::format("{}: {}, shared memory", to_string(collective), way);
  }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override;
  bool sums_in_rank_order(Collective /*reduction*/, ElementType /*type*/) const override { return true; }
  Moved moved() const override;
  void account() override;

  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override;
  void announce(const Announced& outer) override { outer_ = outer; }
  void advance() override {
    check_broken();
    advance_all();
  }
  std::uint32_t watch() override;
  void rest(std::uint32_t seen, Moment until) override;
  void leave() override { bell().sleeping.store(0, std::memory_order_relaxed); }
  void break_off(const Error& error) noexcept override;
  std::optional<Error> broken() const override { return broken_; }
  std::string way(Collective, std::size_t, ElementType) const override { return "shared memory"; }

  // What operations use.
  std::size_t name(std::size_t rank) const { return names_.empty() ? rank : names_[rank]; }
  ShmControl& control() { return control_; }
  ShmRank& own() { return control_.rank(rank_); }
  std::byte* base(std::size_t rank) const { return world_.base(members_[rank]); }
  std::size_t capacity(std::size_t rank) const {
    return members_[rank] == world_.rank ? world_.arena->capacity() : world_.mappings[members_[rank]]->size();
  }
  std::span<std::byte> staging() const { return staging_; }
  /// Wakes those who sleep: they see what was stored before.
  void ring_all();
  /// The same, but one that falls asleep at this moment may be missed.
  void wake_sleepers();
  void check_call(std::size_t peer, const Call& theirs, const Announced& ours);
  [[noreturn]] void break_group(const Error& error);
  bool advance_until(const ShmOperation& operation);
  template <class Waiting>
  void wait_for(Waiting& waiting);
  /// What rank `of` has read from the memory of `peer`, or stored there: this one, or one whose share this one does.
  void add_read(std::size_t of, std::size_t peer, Collective by, std::size_t bytes) {
    add(of, control_.read_bytes(of, peer, by), bytes);
  }
  void add_stored(std::size_t of, std::size_t peer, Collective by, std::size_t bytes) {
    add(of, control_.stored_bytes(of, peer, by), bytes);
  }
  std::byte* slot_of(std::size_t rank, std::uint64_t number, std::size_t bytes) const;
  void prepare_post(std::size_t bytes);

 private:
  void add(std::size_t of, std::atomic<std::uint64_t>& counter, std::size_t bytes) const {
    if (crowded_ || of != rank_)
      counter.fetch_add(bytes, std::memory_order_relaxed);
    else
      counter.store(counter.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  ShmRank& bell() { return bells_.rank(rank_); }
  void sleep(std::uint32_t seen, Nanoseconds at_most);
  void check_broken();
  Moved moved_with(std::size_t peer, Collective by) const;
  Work start(const Call& call, Vector data, const ReduceOp& op, const Parts* parts = nullptr);
  void post(const Call& said, const Call& call, Vector data);
  Work message(std::size_t count, ElementType type, std::byte* data, std::size_t from, std::size_t to);
  void advance_all();
  void look_after_peers(const Announced& said, std::size_t awaited, Moment since);

  const ShmWorld world_;
  const std::vector<std::size_t> members_;
  const std::vector<std::size_t> names_;
  const std::size_t rank_;
  const std::size_t id_;
  const GroupOptions options_;
  ShmControl control_;
  ShmControl bells_;  ///< of the world: a rank sleeps for all of its groups at once
  const std::shared_ptr<std::uint32_t> next_group_;
  const bool crowded_;
  bool all_fence_ = false;  ///< all ranks are known to fence before they sleep
  const std::span<std::byte> staging_;

  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;  ///< by all ranks, when they were last looked at
  std::deque<std::shared_ptr<ShmOperation>> queue_;
  std::deque<std::shared_ptr<ShmMessage>> messages_;
  std::vector<std::uint64_t> sent_;      ///< messages to each rank
  std::vector<std::uint64_t> received_;  ///< messages from each rank
  std::optional<Announced> outer_;
  std::optional<Error> broken_;
  std::vector<std::array<Moved, kShmKinds>> accounted_;  ///< with each rank, by operation
};

// Operations.

ShmOperation::ShmOperation(ShmGroup& group, std::uint64_t number, const Call& call,
                           const std::optional<Announced>& outer, Vector data, ReduceOp op, const Parts* parts)
    : group_(group),
      number_(number),
      call_(call),
      said_(outer ? *outer : Announced{call, number, group.size()}),
      data_(data),
      op_(std::move(op)) {
  if (parts != nullptr) parts_ = *parts;
}

bool ShmOperation::advance() { return finished_ || group_.advance_until(*this); }

void ShmOperation::wait() {
  if (!finished_) group_.wait_for(*this);
}

ShmPost& ShmOperation::post_of(std::size_t rank) const {
  return group_.control().rank(rank).posts[number_ % kShmPosts];
}

std::byte* ShmOperation::slot_of(std::size_t rank) const { return group_.slot_of(rank, number_, data_.bytes()); }

bool ShmOperation::all_posted() {
  for (; posted_ < group_.size(); ++posted_) {
    const ShmPost& theirs = post_of(posted_);
    if (theirs.number.load(std::memory_order_acquire) != number_ + 1) return false;
    group_.check_call(posted_, theirs.call, said_);
  }
  return true;
}

bool ShmOperation::all_ticked(std::uint64_t ticks) const {
  for (std::size_t r = 0; r < group_.size(); ++r)
    if (group_.control().rank(r).ticks.load(std::memory_order_acquire) < ticks) return false;
  return true;
}

void ShmOperation::tick() {
  auto& ticks = group_.own().ticks;
  ticks.store(ticks.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::size_t ShmOperation::awaited() const { return group_.name(missing()); }

std::size_t ShmOperation::missing() const {
  if (way_ == Way::none) return std::min(posted_, group_.size() - 1);
  if (way_ == Way::shared) {
    for (std::size_t r = 0; r < group_.size(); ++r)
      if (r != group_.rank() && group_.control().rank(r).holds.load(std::memory_order_relaxed) == number_ + 1) return r;
    return 0;
  }
  const std::uint64_t wanted = first_tick_ + (way_ == Way::direct ? 1 : iteration_);
  for (std::size_t r = 0; r < group_.size(); ++r)
    if (group_.control().rank(r).ticks.load(std::memory_order_acquire) < wanted) return r;
  return 0;
}

/// A vector in a slot is copied, but costs one barrier; in the arena it costs two. (Measured with 2 ranks: a copy is
/// slower from about 1 KiB on.) Where but some lie in the arena, those do not wait in slots, and the others go
/// through staging. With more ranks than processors, those that run do the shares of those that do not.
ShmOperation::Way ShmOperation::choose_way() const {
  std::size_t staged = 0;
  bool crowded = false;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    staged += post_of(r).staged ? 1 : 0;
    crowded = crowded || post_of(r).crowded;
  }
  if (data_.bytes() <= kShmCopiedBytes) return Way::slots;
  if (staged == 0) return crowded ? Way::shared : Way::direct;
  return staged == group_.size() && data_.bytes() <= kShmSlotBytes ? Way::slots : Way::staged;
}

bool ShmOperation::step() {
  if (way_ == Way::none) {
    if (!all_posted()) return false;
    first_tick_ = group_.own().ticks.load(std::memory_order_relaxed);
    way_ = choose_way();
  }
  switch (way_) {
    case Way::direct:
      if (!step_direct()) return false;
      break;
    case Way::shared:
      if (!step_shared()) return false;
      break;
    case Way::staged:
      if (!step_staged()) return false;
      break;
    default:
      perform(group_.rank(), {0, call_.count});
  }
  group_.own().completed.store(number_ + 1, std::memory_order_release);
  // Only a rank that is kShmPosts ahead waits for this; should it fall asleep just now, our next post wakes it.
  group_.wake_sleepers();
  if (way_ == Way::slots) group_.prepare_post(data_.bytes());
  return finished_ = true;
}

/// The part of it that a rank reduces for all.
Range ShmOperation::chunk(std::size_t rank, Range whole) const {
  const std::size_t n = group_.size();
  return {whole.begin + rank * whole.size() / n, whole.begin + (rank + 1) * whole.size() / n};
}

/// Where a rank's part of a slice lies: its vector's, or its staging's.
std::byte* ShmOperation::address(std::size_t rank, Range slice) const {
  const std::size_t bytes = slice.begin * call_.type.bytes();
  if (way_ == Way::slots) return slot_of(rank) + bytes;
  const ShmPost& post = post_of(rank);
  const std::size_t offset =
      post.offset + (post.staged ? slice.begin / this->slice(0).size() % 2 * kShmSliceBytes : bytes);
  check(offset + slice.size() * call_.type.bytes() <= group_.capacity(rank), "rank {} names memory it does not have",
        rank);
  return group_.base(rank) + offset;
}

/// What is a rank's to do about a slice of the vectors; what is moved is counted as the owner's.
void ShmOperation::perform(std::size_t owner, Range slice) {
  switch (call_.collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return reduce_parts(owner, slice);
    case Collective::all_gather:
      for (std::size_t r = 0; r < group_.size(); ++r) {
        if (r == owner) continue;
        for (const Range range : parts_[r]) copy(owner, r, range, slice);
      }
      return;
    case Collective::broadcast:
      if (owner != call_.root) copy(owner, call_.root, slice, slice);
      return;
    default:
      return;
  }
}

/// Through slots every rank reduces all of it for itself; else its own part, and an all-reduce stores that to all.
void ShmOperation::reduce_parts(std::size_t owner, Range slice) {
  if (call_.collective == Collective::reduce_scatter) {
    for (const Range range : parts_[owner]) reduce_range(owner, range, slice);
  } else if (way_ == Way::slots) {
    reduce_range(owner, slice, slice);
  } else {
    reduce_range(owner, chunk(owner, way_ == Way::staged ? slice : Range{0, call_.count}), slice);
  }
}

void ShmOperation::reduce_range(std::size_t owner, Range range, Range slice) {
  range = range.intersect(slice);
  if (range.empty()) return;
  const std::size_t n = group_.size();
  constexpr std::size_t kFew = 16;
  std::array<const std::byte*, kFew> few_from;
  std::array<std::byte*, kFew> few_to;
  std::vector<const std::byte*> many_from(n > kFew ? n : 0);
  std::vector<std::byte*> many_to(n > kFew ? n : 0);
  const std::span from(n > kFew ? many_from.data() : few_from.data(), n);
  const std::span to(n > kFew ? many_to.data() : few_to.data(), n);
  const std::size_t width = call_.type.bytes();
  const std::size_t bytes = range.size() * width;
  const bool to_all = call_.collective == Collective::all_reduce && way_ != Way::slots;
  std::size_t targets = 0;
  for (std::size_t r = 0; r < n; ++r) {
    std::byte* there = r == owner ? target(owner, range) : address(r, slice) + (range.begin - slice.begin) * width;
    from[r] = there;
    if (r != owner) group_.add_read(owner, r, said_.call.collective, bytes);
    if (to_all || r == owner) to[targets++] = there;
    if (to_all && r != owner) group_.add_stored(owner, r, said_.call.collective, bytes);
  }
  reduce(op_, call_.type, from, to.first(targets), range.size(), 1.0 / static_cast<double>(said_.ranks));
}

/// Where a range of a rank's vector lies, be it staged or not.
/// REQUIRES: the rank is this one, or its vector lies in its arena.
std::byte* ShmOperation::target(std::size_t rank, Range range) const {
  if (rank != group_.rank()) return address(rank, range);
  return data_.data + range.begin * call_.type.bytes();
}

void ShmOperation::copy(std::size_t owner, std::size_t from, Range range, Range slice) {
  range = range.intersect(slice);
  if (range.empty()) return;
  const std::size_t width = call_.type.bytes();
  const std::size_t bytes = range.size() * width;
  std::memcpy(target(owner, range), address(from, slice) + (range.begin - slice.begin) * width, bytes);
  group_.add_read(owner, from, said_.call.collective, bytes);
}

/// Each rank does its own share, and waits for the others'.
bool ShmOperation::step_direct() {
  if (iteration_ == 0) {
    perform(group_.rank(), {0, call_.count});
    tick();
    group_.ring_all();
    iteration_ = 1;
  }
  return all_ticked(first_tick_ + 1);
}

/// Whoever runs does the next slice of everybody's share, from the end of the vectors on: what was written last is
/// still in cache, and what is reduced last is what is read first. Who has not run meanwhile finds all done.
bool ShmOperation::step_shared() {
  ShmShares& shares = group_.control().header().shares;
  const std::size_t elements =
      std::max(kShmShareBytes / call_.type.bytes(), (call_.count + ShmShares::kMost - 1) / ShmShares::kMost);
  const std::uint64_t slices = std::max<std::uint64_t>(1, (call_.count + elements - 1) / elements);
  auto& holds = group_.own().holds;
  holds.store(number_ + 1, std::memory_order_relaxed);
  while (const auto index = shares.claim(number_, slices)) {
    const std::uint64_t place = slices - 1 - *index;
    const Range slice = Range{place * elements, (place + 1) * elements}.intersect({0, call_.count});
    for (std::size_t owner = 0; owner < group_.size(); ++owner) perform(owner, slice);
    if (shares.finish(slices)) group_.ring_all();
  }
  holds.store(0, std::memory_order_relaxed);
  return shares.done(number_, slices);
}

Range ShmOperation::slice(std::size_t index) const {
  const std::size_t elements = kShmSliceBytes / call_.type.bytes();
  return Range{index * elements, (index + 1) * elements}.intersect({0, std::max(call_.count, elements)});
}

/// In iteration k slice k is copied in, slice k - 1 is performed, and slice k - 2 is copied out: with two slices of
/// staging nobody waits for the copies. An iteration begins when all ranks have finished the one before.
bool ShmOperation::step_staged() {
  const std::size_t slices = (data_.bytes() + kShmSliceBytes - 1) / kShmSliceBytes;
  const auto of = [&](std::size_t index) { return slice(index).intersect({0, call_.count}); };
  for (;; ++iteration_) {
    if (iteration_ > 0 && !all_ticked(first_tick_ + iteration_)) return false;
    if (iteration_ >= 2) stage_out(of(iteration_ - 2));
    if (iteration_ == slices + 1) return true;
    if (iteration_ < slices) stage_in(of(iteration_));
    if (iteration_ >= 1) perform(group_.rank(), of(iteration_ - 1));
    tick();
    group_.ring_all();
  }
}

/// What others read, or reduce and store, of this rank's slice; the rest never leaves its vector.
template <class Function>
void ShmOperation::for_each_staged(Range slice, Function function) const {
  const std::size_t me = group_.rank();
  if (!post_of(me).staged) return;
  switch (call_.collective) {
    case Collective::all_reduce:
      for (std::size_t r = 0; r < group_.size(); ++r)
        if (r != me) function(chunk(r, slice));
      return;
    case Collective::reduce_scatter:
      for (std::size_t r = 0; r < group_.size(); ++r) {
        if (r == me) continue;
        for (const Range range : parts_[r]) function(range.intersect(slice));
      }
      return;
    case Collective::all_gather:
      for (const Range range : parts_[me]) function(range.intersect(slice));
      return;
    default:
      if (me == call_.root) function(slice);
  }
}

void ShmOperation::stage_in(Range slice) {
  const std::size_t width = call_.type.bytes();
  for_each_staged(slice, [&](Range range) {
    if (range.empty()) return;
    std::memcpy(address(group_.rank(), slice) + (range.begin - slice.begin) * width, data_.data + range.begin * width,
                range.size() * width);
  });
}

/// Only an all-reduce is stored by others; everything else goes straight to where it belongs.
void ShmOperation::stage_out(Range slice) {
  if (call_.collective != Collective::all_reduce) return;
  const std::size_t width = call_.type.bytes();
  for_each_staged(slice, [&](Range range) {
    if (range.empty()) return;
    std::memcpy(data_.data + range.begin * width, address(group_.rank(), slice) + (range.begin - slice.begin) * width,
                range.size() * width);
  });
}

// Messages.

ShmMessage::~ShmMessage() {
  if (!copy_.empty()) group_.arena()->free(copy_);
}

bool ShmMessage::advance() { return finished_ || step(); }

void ShmMessage::wait() {
  if (!finished_) group_.wait_for(*this);
}

std::size_t ShmMessage::awaited() const { return group_.name(group_.rank() == from_ ? to_ : from_); }

bool ShmMessage::step() { return finished_ = finished_ || (group_.rank() == from_ ? step_send() : step_recv()); }

/// A small one is complete once it lies in the mailbox; a large one once the receiver has read it.
bool ShmMessage::step_send() {
  ShmMailbox& box = group_.control().mailbox(from_, to_);
  const std::size_t bytes = call_.count * call_.type.bytes();
  const bool small = bytes <= kShmSlotBytes;
  if (!posted_) {
    if (box.taken.load(std::memory_order_acquire) != number_) return false;  // the one before lies there
    box.post.call = call_;
    std::byte* data = data_;
    if (small) {
      if (bytes > 0) std::memcpy(group_.control().mailbox_slot(from_, to_), data_, bytes);
    } else {
      if (group_.arena()->mark(data_) == 0) {
        copy_ = group_.arena()->allocate(bytes);
        std::memcpy(copy_.data(), data_, bytes);
        data = copy_.data();
      }
      box.post.offset = group_.arena()->mark(data) - 1;
    }
    box.post.number.store(number_ + 1, std::memory_order_release);
    group_.ring_all();
    posted_ = true;
  }
  return small || box.taken.load(std::memory_order_acquire) > number_;
}

bool ShmMessage::step_recv() {
  ShmMailbox& box = group_.control().mailbox(from_, to_);
  if (box.post.number.load(std::memory_order_acquire) != number_ + 1) return false;
  Call ours = call_;
  ours.collective = Collective::send;
  ours.root = box.post.call.root;
  group_.check_call(from_, box.post.call, {ours, number_});
  const std::size_t bytes = call_.count * call_.type.bytes();
  if (bytes <= kShmSlotBytes) {
    if (bytes > 0) std::memcpy(data_, group_.control().mailbox_slot(from_, to_), bytes);
  } else {
    check(box.post.offset + bytes <= group_.capacity(from_), "rank {} names memory it does not have", from_);
    std::memcpy(data_, group_.base(from_) + box.post.offset, bytes);
  }
  group_.add_read(group_.rank(), from_, Collective::send, bytes);
  box.taken.store(number_ + 1, std::memory_order_release);
  group_.ring_all();
  return true;
}

// The group.

/// What was stored before has to be seen by whoever sleeps, or we have to see that it does. Its fence does for both;
/// ours would wait until the store has left this processor, which is a third of a small operation's time.
void ShmGroup::ring_all() {
  if (all_fence_) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    all_fence_ = true;
    for (std::size_t r = 0; r < size(); ++r)
      all_fence_ = all_fence_ && bells_.rank(r).fences.load(std::memory_order_relaxed) == 1;
  }
  wake_sleepers();
}

void ShmGroup::wake_sleepers() {
  for (std::size_t r = 0; r < size(); ++r) {
    ShmRank& peer = bells_.rank(r);
    if (r == rank_ || peer.sleeping.load(std::memory_order_relaxed) == 0) continue;
    peer.bell.fetch_add(1, std::memory_order_release);
    futex(peer.bell, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

void ShmGroup::check_call(std::size_t peer, const Call& theirs, const Announced& ours) {
  if (theirs == ours.call) return;
  break_group(Error(ErrorKind::usage, mismatch(ours.number, name(rank_), ours.call, name(peer), theirs)));
}

void ShmGroup::break_group(const Error& error) {
  break_off(error);
  throw error;
}

/// The first cause is everybody's.
void ShmGroup::break_off(const Error& error) noexcept {
  if (broken_) return;
  broken_ = error;
  ShmGroupHeader& header = control_.header();
  std::uint32_t whole = 0;
  if (header.broken.compare_exchange_strong(whole, 1)) {
    header.kind = static_cast<std::uint32_t>(error.kind());
    std::strncpy(header.text, error.what(), kShmTextBytes - 1);
    header.broken.store(2, std::memory_order_release);
    ring_all();
  }
}

void ShmGroup::check_broken() {
  if (!broken_ && control_.header().broken.load(std::memory_order_acquire) == 2) {
    const ShmGroupHeader& header = control_.header();
    broken_ = Error(static_cast<ErrorKind>(header.kind), header.text);
  }
  if (broken_) throw *broken_;
}

Work ShmGroup::start(const Call& call, Vector data, const ReduceOp& op, const Parts* parts) {
  check_broken();
  const Call& said = outer_ ? outer_->call : call;
  // The post and the slot of so many operations ago are used again: everybody has to be behind that.
  if (posted_ >= completed_ + kShmPosts) {
    const std::uint64_t behind = posted_ - kShmPosts + 1;
    struct Room {
      ShmGroup& group;
      std::uint64_t behind;
      Announced says;
      bool step() {
        group.advance_all();
        return awaited() == group.size();
      }
      std::size_t awaited() const {
        std::size_t r = 0;
        while (r < group.size() && group.control_.rank(r).completed.load(std::memory_order_acquire) >= behind) ++r;
        return r;
      }
      const Announced& said() const { return says; }
    } room{*this, behind, {said, behind - 1}};
    if (!room.step()) wait_for(room);
    completed_ = posted_;
    for (std::size_t r = 0; r < size(); ++r)
      completed_ = std::min(completed_, control_.rank(r).completed.load(std::memory_order_acquire));
  }
  post(said, call, data);
  // What the others need not wait for comes after.
  auto operation = std::make_shared<ShmOperation>(*this, posted_++, call, outer_, data, op, parts);
  queue_.push_back(operation);
  return Work(std::move(operation));
}

/// Tells the others of the next operation.
void ShmGroup::post(const Call& said, const Call& call, Vector data) {
  ShmPost& post = own().posts[posted_ % kShmPosts];
  post.call = said;
  const std::size_t bytes = data.bytes();
  const bool small = bytes <= kShmCopiedBytes;
  const auto place = small ? 0 : arena()->mark(data.data);
  post.staged = !small && place == 0;
  post.crowded = crowded_;
  post.offset = place != 0 ? place - 1 : static_cast<std::uint64_t>(staging_.data() - arena()->base());
  const bool copied = bytes > 0 && (small || (post.staged && bytes <= kShmSlotBytes));
  if (copied && (call.collective != Collective::broadcast || call.root == rank_))
    std::memcpy(slot_of(rank_, posted_, bytes), data.data, bytes);
  post.number.store(posted_ + 1, std::memory_order_release);
  ring_all();
}

/// Takes the lines of the next post, which others have read, back into this processor's cache while the caller
/// computes. The next vector is likely to be as large.
void ShmGroup::prepare_post(std::size_t bytes) {
  const auto take = [](const std::byte* begin, std::size_t size) {
    for (std::size_t i = 0; i < size; i += 64) asm volatile("prefetchw %0" : : "m"(begin[i]));
  };
  take(reinterpret_cast<const std::byte*>(&own().posts[posted_ % kShmPosts]), 64);
  if (bytes > sizeof ShmPost::few) take(slot_of(rank_, posted_, bytes), bytes);
}

/// Where a rank's vector of so many bytes lies, if it is small enough.
std::byte* ShmGroup::slot_of(std::size_t rank, std::uint64_t number, std::size_t bytes) const {
  ShmPost& post = control_.rank(rank).posts[number % kShmPosts];
  if (bytes > sizeof post.small) return control_.slot(rank, number);
  return bytes <= sizeof post.few ? post.few : post.small;
}

Work ShmGroup::message(std::size_t count, ElementType type, std::byte* data, std::size_t from, std::size_t to) {
  check_rank(from, size());
  check_rank(to, size());
  if (from == to) fail(ErrorKind::usage, "rank {} sends to itself", from);
  check_broken();
  const std::uint64_t number = from == rank_ ? sent_[to]++ : received_[from]++;
  const Call call{
      from == rank_ ? Collective::send : Collective::recv, {}, type, static_cast<std::uint32_t>(to), count, 0};
  auto message = std::make_shared<ShmMessage>(*this, number, call, data, from, to);
  messages_.push_back(message);
  advance_all();
  return Work(std::move(message));
}

void ShmGroup::advance_all() {
  while (!queue_.empty() && queue_.front()->step()) queue_.pop_front();
  if (messages_.empty()) return;
  for (const auto& message : messages_) message->step();
  std::erase_if(messages_, [](const auto& message) { return message->finished(); });
}

bool ShmGroup::advance_until(const ShmOperation& operation) {
  if (broken_) throw *broken_;
  advance_all();
  return operation.finished();
}

/// `Waiting` has step(), awaited() and said().
template <class Waiting>
void ShmGroup::wait_for(Waiting& waiting) {
  if (broken_) throw *broken_;
  const auto ready = [&] {
    if constexpr (std::is_same_v<Waiting, ShmOperation>) {
      advance_all();
      return waiting.finished();
    } else if constexpr (std::is_same_v<Waiting, ShmMessage>) {
      advance_all();
      return waiting.step();
    } else {
      return waiting.step();
    }
  };
  for (unsigned i = 0; i < (crowded_ ? kCrowdedPauses : kPauses); ++i) {
    if (ready()) return;
    _mm_pause();
  }
  const SystemClock clock;
  const Moment since = clock.now();
  while (clock.now() < since + kYieldFor) {
    ::sched_yield();
    if (ready()) return;
  }
  for (;;) {
    const std::uint32_t seen = watch();
    bool done = false;
    try {
      done = ready();
    } catch (...) {
      leave();
      throw;
    }
    if (!done) sleep(seen, kSleep);
    leave();
    if (done || ready()) return;
    look_after_peers(waiting.said(), waiting.awaited(), since);
  }
}

/// Who rings stores first, then looks whether we sleep; we say so first, then look at what was stored.
std::uint32_t ShmGroup::watch() {
  const std::uint32_t seen = bell().bell.load(std::memory_order_acquire);
  bell().sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (bell().fences.load(std::memory_order_relaxed) == 1) process_fence();
  return seen;
}

void ShmGroup::rest(std::uint32_t seen, Moment until) {
  const auto rung = [&] { return bell().bell.load(std::memory_order_acquire) != seen; };
  for (unsigned i = 0; i < (crowded_ ? kCrowdedPauses : kPauses) && !rung(); ++i) _mm_pause();
  const SystemClock clock;
  const Moment since = clock.now();
  while (!rung() && clock.now() < since + kYieldFor) ::sched_yield();
  if (const Nanoseconds left = until - clock.now(); !rung() && left > Nanoseconds(0))
    sleep(seen, std::min(left, kSleep));
  leave();
}

void ShmGroup::sleep(std::uint32_t seen, Nanoseconds at_most) {
  const timespec limit{0, at_most.count()};
  futex(bell().bell, FUTEX_WAIT, seen, &limit);
}

void ShmGroup::look_after_peers(const Announced& said, std::size_t awaited, Moment since) {
  check_broken();
  const std::string doing =
      fmt::format("[ring] rank {}: in {}, waiting for rank {}", name(rank_), name_of(said.call, said.number), awaited);
  if (options_.check) {
    try {
      options_.check();
    } catch (const Error& error) {
      break_group(error.with_context(doing));
    }
  }
  const Nanoseconds waited = SystemClock().now() - since;
  if (options_.op_timeout > Nanoseconds(0) && waited > options_.op_timeout)
    break_group(Error(ErrorKind::timeout, fmt::format("{}: nothing for {:.1f} s", doing, seconds(waited))));
}

std::unique_ptr<ProcessGroup> ShmGroup::split(std::uint32_t colour, std::uint32_t key) {
  const Split split = agree_on_split(*this, colour, key, *next_group_);
  *next_group_ = split.next_group;
  return part(split.ranks, split.id, {});
}

std::unique_ptr<InnerGroup> ShmGroup::part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                           std::vector<std::size_t> names) {
  if (id >= kShmGroups) fail(ErrorKind::usage, "more than {} groups", kShmGroups);
  std::vector<std::size_t> members;
  for (const std::size_t r : ranks) members.push_back(members_[r]);
  return std::make_unique<ShmGroup>(world_, std::move(members), std::move(names), id, options_, next_group_);
}

Cost ShmGroup::predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
                       std::size_t root) const {
  const std::size_t n = size();
  const std::uint64_t bytes = count * type.bytes();
  const bool slots = bytes <= kShmCopiedBytes;
  const auto part = [&](std::size_t r) {
    std::uint64_t elements = 0;
    for (const Range range : parts[r]) elements += range.size();
    return elements * type.bytes();
  };
  std::uint64_t all_parts = 0;
  for (std::size_t r = 0; r < parts.size(); ++r) all_parts += part(r);
  switch (collective) {
    case Collective::all_reduce: {
      if (slots) return {{(n - 1) * bytes, (n - 1) * bytes}};
      // Cut as the operation cuts it: slices of a staged one differ by their rounding alone.
      const std::uint64_t mine = ((rank_ + 1) * count / n - rank_ * count / n) * type.bytes();
      return {{(n - 1) * mine + bytes - mine, (n - 1) * mine + bytes - mine}};
    }
    case Collective::reduce_scatter:
      return {{all_parts - part(rank_), (n - 1) * part(rank_)}};
    case Collective::all_gather:
      return {{(n - 1) * part(rank_), all_parts - part(rank_)}};
    case Collective::broadcast:
      return {rank_ == root ? Moved{(n - 1) * bytes, 0} : Moved{0, bytes}};
    case Collective::send:
      return {{bytes, 0}};
    case Collective::recv:
      return {{0, bytes}};
    default:
      return {};
  }
}

/// With one peer, by one operation, as both sides counted.
Moved ShmGroup::moved_with(std::size_t peer, Collective by) const {
  const auto load = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {load(control_.stored_bytes(rank_, peer, by)) + load(control_.read_bytes(peer, rank_, by)),
          load(control_.read_bytes(rank_, peer, by)) + load(control_.stored_bytes(peer, rank_, by))};
}

Moved ShmGroup::moved() const {
  Moved total;
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    for (const Collective by : kCollectives) {
      const Moved with = moved_with(r, by);
      total.sent += with.sent;
      total.received += with.received;
    }
  }
  return total;
}

void ShmGroup::account() {
  if (options_.ledger == nullptr) return;
  accounted_.resize(size());
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const std::string peer =
        net::to_string(net::Peer{net::Role::worker, static_cast<std::uint32_t>(world_.worker(members_[r]))});
    for (const Collective by : kCollectives) {
      Moved& before = accounted_[r][static_cast<std::size_t>(by)];
      const Moved now = moved_with(r, by);
      const std::string operation(by == Collective::send ? "message" : to_string(by));
      if (now.sent > before.sent)
        options_.ledger->add(ByteLedger::Direction::sent, operation, peer, now.sent - before.sent, 0);
      if (now.received > before.received)
        options_.ledger->add(ByteLedger::Direction::received, operation, peer, now.received - before.received, 0);
      before = now;
    }
  }
}

}  // namespace

std::unique_ptr<InnerGroup> make_shm_group(const ShmWorld& world, GroupOptions options) {
  std::vector<std::size_t> members(world.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  return std::make_unique<ShmGroup>(world, std::move(members), std::vector<std::size_t>(), 0, std::move(options),
                                    std::make_shared<std::uint32_t>(1));
}

std::vector<ShmWorld> make_shm_worlds(std::size_t ranks, std::size_t arena_bytes) {
  const auto control = std::make_shared<const Mapping>(ShmControl::file_bytes(ranks));
  std::vector<std::shared_ptr<Arena>> arenas;
  for (std::size_t r = 0; r < ranks; ++r) arenas.push_back(std::make_shared<Arena>(arena_bytes));
  std::vector<ShmWorld> worlds;
  for (std::size_t r = 0; r < ranks; ++r) {
    ShmWorld world{r, arenas[r], std::vector<std::shared_ptr<const Mapping>>(ranks), control};
    for (std::size_t q = 0; q < ranks; ++q)
      if (q != r) world.mappings[q] = std::make_shared<const Mapping>(arenas[q]->file(), arenas[q]->capacity());
    worlds.push_back(std::move(world));
  }
  return worlds;
}

std::vector<std::unique_ptr<ProcessGroup>> make_shm_groups(std::size_t ranks, std::size_t arena_bytes,
                                                           const GroupOptions& options, std::span<ByteLedger> ledgers) {
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (const ShmWorld& world : make_shm_worlds(ranks, arena_bytes)) {
    GroupOptions own = options;
    if (!ledgers.empty()) own.ledger = &ledgers[world.rank];
    groups.push_back(make_shm_group(world, std::move(own)));
  }
  return groups;
}

}  // namespace psring::ring
