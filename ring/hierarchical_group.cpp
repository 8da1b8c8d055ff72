#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/error.h>
#include <psring/ring/hierarchical_group.h>
#include <psring/ring/hierarchy.h>
#include <psring/ring/split.h>

namespace psring::ring {
namespace {

constexpr Nanoseconds kLook = std::chrono::milliseconds(20);  ///< of waiting, then it looks whether the peers live
/// How long it waits in one kind of inner group where the other one has something under way, too.
constexpr Nanoseconds kTurn = std::chrono::milliseconds(1);
/// Operations in the inner groups at a time, the others wait: with half of what a rank may be ahead in shared memory,
/// a call of an inner group never waits.
constexpr std::size_t kUnderWay = kShmPosts / 2;

class HierarchicalGroup;

/// What a call on the group comes to.
class Task : public Operation {
 public:
  Task(HierarchicalGroup& group, const Announced& said) : group_(group), said_(said) {}
  bool advance() final;
  void wait() final;

  const Announced& said() const { return said_; }
  bool finished() const { return finished_; }
  /// Does it wait for messages between hosts, and not for shared memory?
  virtual bool waits_for_links() const = 0;

 protected:
  bool finish() { return finished_ = true; }

 private:
  HierarchicalGroup& group_;
  const Announced said_;
  bool finished_ = false;
};

/// A collective: down, between, up, each in its turn.
class Stepwise final : public Task {
 public:
  Stepwise(HierarchicalGroup& group, const Announced& said, Vector data, ReduceOp op, Hierarchy::Stages stages)
      : Task(group, said), data_(data), op_(std::move(op)), stages_(std::move(stages)) {}

  void go_down(InnerGroup& group);
  bool is_down() { return down_.done(); }
  void go_between(const std::vector<std::unique_ptr<InnerGroup>>& columns);
  bool is_through();
  void go_up(InnerGroup& group);
  bool is_up() { return up_.done() && finish(); }

  bool waits_for_links() const override { return at_ == At::between; }
  std::size_t awaited() const override;

 private:
  enum class At : std::uint8_t { called, down, between, up };
  Work begin(InnerGroup& group, const Hierarchy::Stage& stage, const ReduceOp& op) const;

  const Vector data_;
  const ReduceOp op_;
  const Hierarchy::Stages stages_;
  At at_ = At::called;
  Work down_;
  std::vector<Work> between_;
  std::size_t through_ = 0;  ///< of `between_`
  Work up_;
};

/// A send or recv: an inner group's.
class Message final : public Task {
 public:
  Message(HierarchicalGroup& group, const Announced& said, Work work, std::size_t peer, bool far)
      : Task(group, said), work_(std::move(work)), peer_(peer), far_(far) {}

  bool step() { return finished() || (work_.done() && finish()); }
  bool waits_for_links() const override { return far_; }
  std::size_t awaited() const override { return peer_; }

 private:
  Work work_;
  const std::size_t peer_;
  const bool far_;
};

/// What a group works with. Stages enter each inner group in the order of the calls at all its ranks, and so what goes
/// down and what goes up need groups of their own: how many go down before the first comes up is up to the network.
struct Inner {
  std::unique_ptr<InnerGroup> down;
  std::unique_ptr<InnerGroup> up;
  std::unique_ptr<InnerGroup> links;  ///< of all ranks
  std::vector<std::unique_ptr<InnerGroup>> columns;
};

/// The inner groups of the `id`-th group, made of any that have all its ranks; `places` and `ranks`: the group's in
/// those. Nothing is said: all ranks know how they are numbered.
Inner make_inner(const Hierarchy& hierarchy, std::uint32_t id, InnerGroup& host, const std::vector<std::size_t>& places,
                 std::unique_ptr<InnerGroup> links, std::uint32_t links_id) {
  const std::vector<std::size_t>& names = hierarchy.on_host(hierarchy.host());
  Inner inner{host.part(places, 2 * id + 1, names), host.part(places, 2 * id + 2, names), std::move(links), {}};
  for (const std::size_t c : hierarchy.own_columns()) {
    const std::vector<std::size_t> ranks = hierarchy.column(c);
    inner.columns.push_back(inner.links->part(ranks, links_id + 1 + static_cast<std::uint32_t>(c), ranks));
  }
  return inner;
}

class HierarchicalGroup final : public ProcessGroup {
 public:
  /// `next_group`: of all groups of this rank; `stride`: so many groups of messages each may have.
  HierarchicalGroup(Hierarchy hierarchy, Inner inner, GroupOptions options, std::shared_ptr<std::uint32_t> next_group,
                    std::uint32_t stride)
      : hierarchy_(std::move(hierarchy)),
        inner_(std::move(inner)),
        options_(std::move(options)),
        next_group_(std::move(next_group)),
        stride_(stride),
        sent_(size(), 0),
        received_(size(), 0) {}

  std::size_t rank() const override { return hierarchy_.rank(); }
  std::size_t size() const override { return hierarchy_.size(); }
  Arena* arena() override { return inner_.down->arena(); }
  std::byte* reach(std::size_t rank, std::uint64_t mark) override {
    check_rank(rank, size());
    if (hierarchy_.host_of(rank) != hierarchy_.host()) return nullptr;
    return inner_.down->reach(hierarchy_.place_of(rank), mark);
  }

  Work all_reduce(Vector data, const ReduceOp& op) override {
    op.require_meaning(data.type);
    return start({Collective::all_reduce, op.kind(), data.type, 0, data.count, fingerprint(op)}, data, op, {});
  }
  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) override {
    op.require_meaning(data.type);
    check_parts(parts, data.count, size());
    return start(
        {Collective::reduce_scatter, op.kind(), data.type, 0, data.count, fingerprint(op) ^ fingerprint(parts)}, data,
        op, parts);
  }
  Work all_gather(Vector data, const Parts& parts) override {
    check_parts(parts, data.count, size());
    return start({Collective::all_gather, {}, data.type, 0, data.count, fingerprint(parts)}, data, {}, parts);
  }
  Work broadcast(Vector data, std::size_t root) override {
    check_rank(root, size());
    return start({Collective::broadcast, {}, data.type, static_cast<std::uint32_t>(root), data.count, 0}, data, {}, {});
  }
  Work barrier() override { return start({}, {}, {}, {}); }
  Work send(ConstVector data, std::size_t to) override;
  Work recv(Vector data, std::size_t from) override;

  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) override;
  std::string describe(Collective collective, std::size_t count, ElementType type) const override;
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override;
  bool sums_in_rank_order(Collective /*reduction*/, ElementType /*type*/) const override {
    return hierarchy_.hosts() == 1;
  }
  Moved moved() const override;
  void account() override {
    inner_.down->account();
    inner_.up->account();
  }

  // What tasks use.
  void advance();
  void wait_for(const Task& task);

 private:
  /// The operations that are under way, by their numbers: each stage has those up to one.
  struct Reached {
    std::uint64_t called = 0;
    std::uint64_t down = 0;
    std::uint64_t between = 0;
    std::uint64_t up = 0;
    std::uint64_t finished = 0;
    friend bool operator==(const Reached&, const Reached&) = default;
  };

  Work start(const Call& call, Vector data, const ReduceOp& op, const Parts& parts);
  Work message(const Call& call, std::uint64_t number, Work work, std::size_t peer, bool far);
  bool far(std::size_t peer) const;
  Stepwise& at(std::uint64_t number) { return *queue_[number - reached_.finished]; }
  bool advance_all();
  void rest(const Task& task, std::uint32_t seen);
  void look_after_peers(Moment since);
  std::string doing(const Task& task) const;
  [[noreturn]] void end(const Error& error, const Task* waiting = nullptr);

  const Hierarchy hierarchy_;
  const Inner inner_;
  const GroupOptions options_;
  const std::shared_ptr<std::uint32_t> next_group_;
  const std::uint32_t stride_;

  Reached reached_;
  std::deque<std::shared_ptr<Stepwise>> queue_;  ///< from the first that is not finished
  std::deque<std::shared_ptr<Message>> messages_;
  std::vector<std::uint64_t> sent_;      ///< messages to each rank
  std::vector<std::uint64_t> received_;  ///< messages from each rank
  std::optional<Error> broken_;
};

// Tasks.

bool Task::advance() {
  if (!finished_) group_.advance();
  return finished_;
}

void Task::wait() {
  if (!finished_) group_.wait_for(*this);
}

Work Stepwise::begin(InnerGroup& group, const Hierarchy::Stage& stage, const ReduceOp& op) const {
  group.announce(said());
  const Vector data = data_.part(stage.range);
  switch (stage.collective) {
    case Collective::all_reduce:
      return group.all_reduce(data, op);
    case Collective::reduce_scatter:
      return group.reduce_scatter(data, stage.parts, op);
    case Collective::all_gather:
      return group.all_gather(data, stage.parts);
    case Collective::broadcast:
      return group.broadcast(data, stage.root);
    default:
      return group.barrier();
  }
}

/// A mean is divided between the hosts, where the sum ends.
void Stepwise::go_down(InnerGroup& group) {
  const bool ends_here = stages_.between.empty() || op_.kind() != ReduceOp::Kind::mean;
  down_ = begin(group, stages_.down, ends_here ? op_ : ReduceOp(ReduceOp::Kind::sum));
  at_ = At::down;
}

void Stepwise::go_between(const std::vector<std::unique_ptr<InnerGroup>>& columns) {
  for (std::size_t i = 0; i < columns.size(); ++i) between_.push_back(begin(*columns[i], stages_.between[i], op_));
  at_ = At::between;
}

bool Stepwise::is_through() {
  while (through_ < between_.size() && between_[through_].done()) ++through_;
  return through_ == between_.size();
}

void Stepwise::go_up(InnerGroup& group) {
  if (stages_.up) up_ = begin(group, *stages_.up, op_);
  at_ = At::up;
}

std::size_t Stepwise::awaited() const {
  const Work& work = at_ == At::down      ? down_
                     : at_ == At::between ? between_[std::min(through_, between_.size() - 1)]
                                          : up_;
  return work.awaited();
}

// The group.

Work HierarchicalGroup::start(const Call& call, Vector data, const ReduceOp& op, const Parts& parts) {
  if (broken_) throw *broken_;
  auto task =
      std::make_shared<Stepwise>(*this, Announced{call, reached_.called, size()}, data, op,
                                 hierarchy_.stages(call.collective, data.count, data.type.bytes(), parts, call.root));
  ++reached_.called;
  queue_.push_back(task);
  advance();
  return Work(std::move(task));
}

bool HierarchicalGroup::far(std::size_t peer) const {
  check_rank(peer, size());
  if (peer == rank()) fail(ErrorKind::usage, "rank {} sends to itself", peer);
  return hierarchy_.host_of(peer) != hierarchy_.host();
}

Work HierarchicalGroup::send(ConstVector data, std::size_t to) {
  const bool away = far(to);
  if (broken_) throw *broken_;
  const Call call{Collective::send, {}, data.type, static_cast<std::uint32_t>(to), data.count, 0};
  Work work = away ? inner_.links->send(data, to) : inner_.down->send(data, hierarchy_.place_of(to));
  return message(call, sent_[to]++, std::move(work), to, away);
}

Work HierarchicalGroup::recv(Vector data, std::size_t from) {
  const bool away = far(from);
  if (broken_) throw *broken_;
  const Call call{Collective::recv, {}, data.type, static_cast<std::uint32_t>(rank()), data.count, 0};
  Work work = away ? inner_.links->recv(data, from) : inner_.down->recv(data, hierarchy_.place_of(from));
  return message(call, received_[from]++, std::move(work), from, away);
}

Work HierarchicalGroup::message(const Call& call, std::uint64_t number, Work work, std::size_t peer, bool far) {
  auto task = std::make_shared<Message>(*this, Announced{call, number}, std::move(work), peer, far);
  messages_.push_back(task);
  advance();
  return Work(std::move(task));
}

void HierarchicalGroup::advance() {
  if (broken_) throw *broken_;
  try {
    advance_all();
  } catch (const Error& error) {
    end(error);
  }
}

/// Was there anything to do?
bool HierarchicalGroup::advance_all() {
  const Reached before = reached_;
  const std::size_t messages = messages_.size();
  inner_.links->advance();
  inner_.down->advance();
  inner_.up->advance();
  for (Reached last;;) {
    last = reached_;
    while (reached_.down < std::min(reached_.called, reached_.finished + kUnderWay))
      at(reached_.down++).go_down(*inner_.down);
    while (reached_.between < reached_.down && at(reached_.between).is_down())
      at(reached_.between++).go_between(inner_.columns);
    while (reached_.up < reached_.between && at(reached_.up).is_through()) at(reached_.up++).go_up(*inner_.up);
    while (reached_.finished < reached_.up && queue_.front()->is_up()) {
      queue_.pop_front();
      ++reached_.finished;
    }
    if (reached_ == last) break;
  }
  std::erase_if(messages_, [](const auto& message) { return message->step(); });
  return reached_ != before || messages_.size() != messages;
}

void HierarchicalGroup::wait_for(const Task& task) {
  if (broken_) throw *broken_;
  const SystemClock clock;
  Moment since = clock.now();
  Moment looked = since;
  Moved bytes = moved();
  try {
    for (;;) {
      const std::uint32_t seen = inner_.down->watch();
      const bool went_on = advance_all();
      if (task.finished()) return inner_.down->leave();
      const Moment now = clock.now();
      if (went_on) {
        since = looked = now;
        continue;
      }
      if (now - looked >= kLook) {
        looked = now;
        if (const Moved more = moved(); more != bytes) {
          bytes = more;
          since = now;
        }
        look_after_peers(since);
      }
      rest(task, seen);
    }
  } catch (const Error& error) {
    inner_.down->leave();
    end(error, &task);
  }
}

/// Sleeps where the next news should come from.
void HierarchicalGroup::rest(const Task& task, std::uint32_t seen) {
  bool near = reached_.between < reached_.down || reached_.finished < reached_.up;
  bool far = reached_.up < reached_.between;
  for (const auto& message : messages_) (message->waits_for_links() ? far : near) = true;
  const Moment until = SystemClock().now() + (near && far ? kTurn : kLook);
  if (!far || (near && !task.waits_for_links())) return inner_.down->rest(seen, until);
  inner_.down->leave();
  inner_.links->rest(0, until);
}

void HierarchicalGroup::look_after_peers(Moment since) {
  if (options_.check) options_.check();
  for (const auto& column : inner_.columns) column->probe();
  const Nanoseconds waited = SystemClock().now() - since;
  if (options_.op_timeout > Nanoseconds(0) && waited > options_.op_timeout)
    fail(ErrorKind::timeout, "nothing for {:.1f} s", seconds(waited));
}

std::string HierarchicalGroup::doing(const Task& task) const {
  return fmt::format("[ring] rank {}: in {}, waiting for rank {}", rank(),
                     name_of(task.said().call, task.said().number), task.awaited());
}

/// Where an inner group has ended, all are told its error, also if we found another one meanwhile. Of anything else it
/// is said here what we were in: a message that is waited for, or else the collective that holds up all others.
void HierarchicalGroup::end(const Error& error, const Task* waiting) {
  if (broken_) throw Error(*broken_);
  const bool message = waiting != nullptr && waiting->said().call.collective >= Collective::send;
  if (!message && !queue_.empty()) waiting = queue_.front().get();
  for (const InnerGroup* group : {inner_.down.get(), inner_.up.get(), inner_.links.get()})
    if (!broken_) broken_ = group->broken();
  if (!broken_) broken_ = waiting == nullptr ? error : error.with_context(doing(*waiting));
  inner_.down->break_off(*broken_);
  inner_.up->break_off(*broken_);
  inner_.links->break_off(*broken_);
  throw Error(*broken_);
}

std::unique_ptr<ProcessGroup> HierarchicalGroup::split(std::uint32_t colour, std::uint32_t key) {
  const Split split = agree_on_split(*this, colour, key, *next_group_);
  *next_group_ = split.next_group;
  if (2 * split.id + 2 >= kShmGroups) fail(ErrorKind::usage, "more than {} groups", kShmGroups / 2 - 1);
  std::vector<std::size_t> host_of;
  std::vector<std::size_t> places;
  for (const std::size_t r : split.ranks) {
    host_of.push_back(hierarchy_.host_of(r));
    if (host_of.back() == hierarchy_.host()) places.push_back(hierarchy_.place_of(r));
  }
  Hierarchy hierarchy(host_of, split.rank);
  const std::uint32_t links_id = split.id * stride_;
  Inner inner =
      make_inner(hierarchy, split.id, *inner_.down, places, inner_.links->part(split.ranks, links_id, {}), links_id);
  return std::make_unique<HierarchicalGroup>(std::move(hierarchy), std::move(inner), options_, next_group_, stride_);
}

std::string HierarchicalGroup::describe(Collective collective, std::size_t count, ElementType type) const {
  if (hierarchy_.hosts() == 1) return inner_.down->describe(collective, count, type);
  const bool cut = collective == Collective::all_reduce || collective == Collective::broadcast;
  const std::size_t between =
      cut ? hierarchy_.stages(collective, count, type.bytes(), {}, 0).between.front().range.size() : count;
  return fmt::format("{}: hierarchical, {} hosts; {} inside, {} between", to_string(collective), hierarchy_.hosts(),
                     inner_.down->way(collective, count, type), inner_.columns.front()->way(collective, between, type));
}

Cost HierarchicalGroup::predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
                                std::size_t root) const {
  if (collective == Collective::send) return {{count * type.bytes(), 0}};
  if (collective == Collective::recv) return {{0, count * type.bytes()}};
  const Hierarchy::Stages stages = hierarchy_.stages(collective, count, type.bytes(), parts, root);
  Cost sum;
  const auto add = [&](const InnerGroup& group, const Hierarchy::Stage& stage) {
    const Cost moved = group.predict(stage.collective, stage.range.size(), type, stage.parts, stage.root);
    sum.sent += moved.sent;
    sum.received += moved.received;
    sum.latencies = std::max(sum.latencies, moved.latencies);  // columns work at the same time
  };
  add(*inner_.down, stages.down);
  for (std::size_t i = 0; i < stages.between.size(); ++i) add(*inner_.columns[i], stages.between[i]);
  if (stages.up) add(*inner_.up, *stages.up);
  return sum;
}

Moved HierarchicalGroup::moved() const {
  Moved sum;
  const auto add = [&](const InnerGroup& group) {
    const Moved moved = group.moved();
    sum.sent += moved.sent;
    sum.received += moved.received;
  };
  add(*inner_.down);
  add(*inner_.up);
  add(*inner_.links);
  for (const auto& column : inner_.columns) add(*column);
  return sum;
}

}  // namespace

std::unique_ptr<ProcessGroup> make_hierarchical_group(std::unique_ptr<InnerGroup> host,
                                                      std::unique_ptr<InnerGroup> links, std::size_t rank,
                                                      const std::vector<std::size_t>& host_of, GroupOptions options) {
  Hierarchy hierarchy(host_of, rank);
  std::vector<std::size_t> places(host->size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  Inner inner = make_inner(hierarchy, 0, *host, places, std::move(links), 0);
  const auto stride = static_cast<std::uint32_t>(hierarchy.size() + 1);
  return std::make_unique<HierarchicalGroup>(std::move(hierarchy), std::move(inner), std::move(options),
                                             std::make_shared<std::uint32_t>(1), stride);
}

}  // namespace psring::ring
