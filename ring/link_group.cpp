#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/error.h>
#include <psring/common/net/handshake.h>
#include <psring/ring/call.h>
#include <psring/ring/link_group.h>
#include <psring/ring/split.h>

namespace psring::ring {
namespace {

constexpr Nanoseconds kLook = std::chrono::milliseconds(20);  ///< of waiting, then it looks whether the peers live
constexpr Nanoseconds kLastWords = std::chrono::milliseconds(200);

net::FrameType frame_type(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return net::FrameType::all_reduce;
    case Collective::reduce_scatter:
      return net::FrameType::reduce_scatter;
    case Collective::all_gather:
      return net::FrameType::all_gather;
    case Collective::broadcast:
      return net::FrameType::broadcast;
    case Collective::barrier:
      return net::FrameType::barrier;
    case Collective::send:
    case Collective::recv:
      return net::FrameType::message;
  }
  return net::FrameType::failed;
}

/// A call travels in every frame of it, so that a rank that called something else hears of it.
void put(const Call& call, net::FrameHeader& header) {
  header.type = frame_type(call.collective);
  header.dtype = call.type.dtype;
  header.micro = static_cast<std::uint32_t>(call.op) | (call.type.located ? 1U << 8 : 0U);
  header.unit = call.root;
  header.version = call.count;
  header.dest = call.fingerprint;
}

Call call_of(const net::FrameHeader& header) {
  Call call;
  for (const Collective each : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                Collective::broadcast, Collective::barrier, Collective::send})
    if (frame_type(each) == header.type) call.collective = each;
  call.op = static_cast<ReduceOp::Kind>(std::min<std::uint32_t>(header.micro & 0xff, 13));
  call.type = {header.dtype, (header.micro >> 8 & 1) != 0};
  call.root = header.unit;
  call.count = header.version;
  call.fingerprint = header.dest;
  return call;
}

/// What the other side of a call has in its frames.
Call as_sent(Call call) {
  if (call.collective == Collective::recv) call.collective = Collective::send;
  return call;
}

class LinkGroup;
class LinkEngine;

class LinkOperation final : public Operation {
 public:
  LinkOperation(LinkGroup& group, std::uint64_t number, const Announced& said, Vector data, ReduceOp op, Plan plan)
      : group_(group), number_(number), said_(said), data_(data), op_(std::move(op)), plan_(std::move(plan)) {}

  bool advance() override;
  void wait() override;
  std::size_t awaited() const override;

  std::uint64_t number() const { return number_; }
  const Announced& said() const { return said_; }
  const Call& call() const { return said_.call; }
  bool finished() const { return finished_; }
  bool step();
  /// Takes a message that is for this operation.
  void take(std::size_t from, net::Message message) { inbox_.push_back({from, std::move(message)}); }
  /// Where the payload of a message goes: what is only received may be written as soon as the operation is called.
  std::span<std::byte> place(std::size_t from, Range range) const;
  /// The rank of the group that is waited for.
  std::size_t missing() const;

 private:
  struct Arrived {
    std::size_t from;
    net::Message message;
  };

  bool send_what_is_ready();
  bool do_next();
  std::optional<net::Message> next_from(const Action& action);
  void combine(Range range);
  bool all_left() const;
  const Action* next() const;
  std::byte* at(std::size_t element) const { return data_.data + element * data_.type.bytes(); }

  LinkGroup& group_;
  const std::uint64_t number_;
  const Announced said_;
  const Vector data_;
  const ReduceOp op_;
  const Plan plan_;
  std::size_t sent_ = 0;   ///< actions before this one are no sends, or have been sent
  std::size_t taken_ = 0;  ///< actions before this one are sends, or done
  bool finished_ = false;
  std::vector<Arrived> inbox_;
  std::vector<Arrived> collected_;
};

/// What the groups of one transport share.
class LinkEngine {
 public:
  LinkEngine(net::Transport& transport, std::size_t rank, std::size_t ranks, LinkOptions options);
  ~LinkEngine();

  net::Transport& transport() { return transport_; }
  const LinkOptions& options() const { return options_; }
  void add(std::uint32_t id, LinkGroup& group);
  void remove(std::uint32_t id) { groups_.erase(id); }
  /// For the owner's thread: `body` has the engine to itself.
  template <class Body>
  auto locked(Body body) {
    if (!options_.background) return body();
    ++wanted_;
    transport_.wake();
    struct Leave {
      LinkEngine& engine;
      ~Leave() {
        --engine.wanted_;
        engine.changed_.notify_one();
      }
    };
    const Leave leave{*this};
    const std::scoped_lock lock(mutex_);
    return body();
  }
  /// Waits until the operation is finished. REQUIRES: locked.
  void wait_for(LinkOperation& operation, LinkGroup& group);
  /// What goes without waiting. REQUIRES: locked.
  void advance_for(LinkOperation& operation, LinkGroup& group);
  void advance_all();
  /// Takes what has come, or what comes next until then. REQUIRES: locked.
  void take_all();
  void take_next(Moment deadline);
  void throw_if_broken() {
    if (broken_) throw *broken_;
    if (found_) break_all(*found_);
  }
  const std::optional<Error>& broken() const { return broken_; }
  /// Nothing works any more, here or at the other ranks, which are told why.
  void break_off(const Error& error) noexcept;
  [[noreturn]] void break_all(const Error& error);
  /// The first number of a subgroup that is free, as far as this rank knows.
  std::uint32_t& next_group() { return next_group_; }

 private:
  void let_words_leave();
  bool pump(Moment deadline);
  void run();
  static std::string doing(const LinkOperation& operation, const LinkGroup& group);

  net::Transport& transport_;
  const std::size_t rank_;
  const std::size_t ranks_;
  const LinkOptions options_;
  const SystemClock system_clock_;
  const Clock& clock_;
  std::map<std::uint32_t, LinkGroup*> groups_;
  std::vector<net::Message> homeless_;  ///< for subgroups that are not made here yet
  std::uint32_t next_group_ = 1;
  std::optional<Error> found_;   ///< by the thread; the owner says in which operation, and tells the others
  std::optional<Error> broken_;  ///< all ranks know
  std::string last_words_;       ///< of break_all: transports read it late

  std::mutex mutex_;  ///< guards all above where there is a thread
  std::condition_variable changed_;
  std::atomic<unsigned> wanted_{0};
  bool stop_ = false;
  std::thread thread_;
};

class LinkGroup final : public InnerGroup {
 public:
  /// `names`: what the members are called, or none.
  LinkGroup(std::shared_ptr<LinkEngine> engine, std::uint32_t id, std::vector<std::uint32_t> members,
            std::vector<std::size_t> names, std::size_t rank)
      : engine_(std::move(engine)),
        id_(id),
        members_(std::move(members)),
        names_(std::move(names)),
        rank_(rank),
        sent_messages_(members_.size(), 0),
        received_messages_(members_.size(), 0) {
    engine_->locked([&] { engine_->add(id_, *this); });
  }
  ~LinkGroup() override {
    engine_->locked([&] { engine_->remove(id_); });
  }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return members_.size(); }

  Work all_reduce(Vector data, const ReduceOp& op) override {
    op.require_meaning(data.type);
    return start({Collective::all_reduce, op.kind(), data.type, 0, data.count, fingerprint(op)}, data, op,
                 plan(Collective::all_reduce, data.count, data.type, {}, 0));
  }
  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) override {
    op.require_meaning(data.type);
    check_parts(parts, data.count, size());
    return start(
        {Collective::reduce_scatter, op.kind(), data.type, 0, data.count, fingerprint(op) ^ fingerprint(parts)}, data,
        op, plan(Collective::reduce_scatter, data.count, data.type, parts, 0));
  }
  Work all_gather(Vector data, const Parts& parts) override {
    check_parts(parts, data.count, size());
    return start({Collective::all_gather, {}, data.type, 0, data.count, fingerprint(parts)}, data, {},
                 plan(Collective::all_gather, data.count, data.type, parts, 0));
  }
  Work broadcast(Vector data, std::size_t root) override {
    check_rank(root, size());
    return start({Collective::broadcast, {}, data.type, static_cast<std::uint32_t>(root), data.count, 0}, data, {},
                 plan(Collective::broadcast, data.count, data.type, {}, root));
  }
  Work barrier() override { return start({}, {}, {}, plan(Collective::barrier, 0, {}, {}, 0)); }
  Work send(ConstVector data, std::size_t to) override {
    return message(data.count, data.type, const_cast<std::byte*>(data.data), rank_, to);
  }
  Work recv(Vector data, std::size_t from) override { return message(data.count, data.type, data.data, from, rank_); }
  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) override;
  std::string describe(Collective collective, std::size_t count, ElementType type) const override;
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    if (collective == Collective::send) return {{count * type.bytes(), 0}};
    if (collective == Collective::recv) return {{0, count * type.bytes()}};
    const Plan made = plan(collective, count, type, parts, root);
    const bool reduces = collective == Collective::all_reduce;
    return {{made.sent() * type.bytes(), made.received() * type.bytes()},
            reduces ? latencies(choice(count * type.bytes()).algorithm, size()) : 0};
  }
  bool sums_in_rank_order(Collective reduction, ElementType type) const override {
    const auto& algorithm = engine_->options().algorithm;
    // A star's root takes one vector after the other, and rounds what is narrow each time.
    const bool star = algorithm == Algorithm::star && reduction == Collective::all_reduce && type.bytes() >= 4;
    return size() <= 2 || algorithm == Algorithm::exchange || star;
  }
  Moved moved() const override {
    return engine_->locked([&] { return moved_; });
  }

  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override;
  void announce(const Announced& outer) override { outer_ = outer; }
  void advance() override {
    engine_->locked([&] { engine_->take_all(); });
  }
  void rest(std::uint32_t /*seen*/, Moment until) override {
    engine_->locked([&] { engine_->take_next(until); });
  }
  void probe() override {
    engine_->locked([&] {
      if (!operations_.empty()) probe(*operations_.front());
    });
  }
  void break_off(const Error& error) noexcept override {
    engine_->locked([&] { engine_->break_off(error); });
  }
  std::optional<Error> broken() const override {
    return engine_->locked([&] { return std::optional<Error>(engine_->broken()); });
  }
  std::string way(Collective collective, std::size_t count, ElementType type) const override;

  // What the engine and operations use.
  LinkEngine& engine() { return *engine_; }
  net::Peer peer(std::size_t rank) const { return {net::Role::worker, members_[rank]}; }
  void send_frame(const LinkOperation& operation, std::size_t to, Range range, std::span<const std::byte> payload);
  /// Tells the rank that is waited for what we wait in: if it is in something else, neither would ever know.
  void probe(const LinkOperation& operation);
  void arrived(net::Message message);
  std::span<std::byte> place(const net::FrameHeader& header);
  void step();
  bool idle() const { return operations_.empty(); }
  std::size_t name(std::size_t rank) const { return names_.empty() ? rank : names_[rank]; }

 private:
  Tuning::Row choice(std::size_t bytes) const;
  std::string_view plan_name(Collective collective, std::size_t bytes) const;
  std::string reached() const;
  Plan plan(Collective collective, std::size_t count, ElementType type, const Parts& parts, std::size_t root) const;
  Work start(const Call& call, Vector data, const ReduceOp& op, Plan made);
  Work launch(std::shared_ptr<LinkOperation> operation);
  Work message(std::size_t count, ElementType type, std::byte* data, std::size_t from, std::size_t to);
  std::size_t rank_of(net::Peer peer) const;
  LinkOperation* find(const net::FrameHeader& header, std::size_t from) const;
  void check_call(const LinkOperation& operation, std::size_t from, const net::FrameHeader& header);
  net::FrameHeader header_of(const LinkOperation& operation) const;

  const std::shared_ptr<LinkEngine> engine_;
  const std::uint32_t id_;
  const std::vector<std::uint32_t> members_;
  const std::vector<std::size_t> names_;
  const std::size_t rank_;
  std::optional<Announced> outer_;
  std::uint64_t numbers_ = 0;
  std::vector<std::uint64_t> sent_messages_;
  std::vector<std::uint64_t> received_messages_;
  std::vector<std::shared_ptr<LinkOperation>> operations_;  ///< under way
  std::vector<net::Message> early_;                         ///< of operations that are not called here yet
  Moved moved_;
};

// Operations.

bool LinkOperation::advance() {
  return group_.engine().locked([&] {
    if (!finished_) group_.engine().advance_for(*this, group_);
    return finished_;
  });
}

std::size_t LinkOperation::awaited() const {
  return group_.engine().locked([&] { return group_.name(missing()); });
}

void LinkOperation::wait() {
  group_.engine().locked([&] {
    if (!finished_) group_.engine().wait_for(*this, group_);
  });
}

const Action* LinkOperation::next() const {
  std::size_t i = taken_;
  while (i < plan_.actions.size() && plan_.actions[i].kind == Action::Kind::send) ++i;
  return i < plan_.actions.size() ? &plan_.actions[i] : nullptr;
}

std::size_t LinkOperation::missing() const {
  if (const Action* action = next(); action != nullptr && action->kind != Action::Kind::combine) return action->peer;
  for (const Action& action : plan_.actions)
    if (action.kind == Action::Kind::send && group_.engine().transport().in_flight_bytes(group_.peer(action.peer)) > 0)
      return action.peer;
  return group_.rank();
}

bool LinkOperation::step() {
  if (finished_) return true;
  while (send_what_is_ready() || do_next()) {
  }
  return finished_ = sent_ == plan_.actions.size() && next() == nullptr && all_left();
}

bool LinkOperation::send_what_is_ready() {
  const std::size_t before = sent_;
  for (; sent_ < plan_.actions.size(); ++sent_) {
    const Action& action = plan_.actions[sent_];
    if (action.kind != Action::Kind::send) continue;
    if (action.after != Action::kAtOnce && action.after >= taken_) break;
    group_.send_frame(*this, action.peer, action.range,
                      {at(action.range.begin), action.range.size() * data_.type.bytes()});
  }
  return sent_ != before;
}

/// Have the bytes of our own sends left this process? Until then the vector is not to be changed.
bool LinkOperation::all_left() const {
  return std::all_of(plan_.actions.begin(), plan_.actions.end(), [&](const Action& action) {
    return action.kind != Action::Kind::send ||
           group_.engine().transport().in_flight_bytes(group_.peer(action.peer)) == 0;
  });
}

bool LinkOperation::do_next() {
  while (taken_ < plan_.actions.size() && plan_.actions[taken_].kind == Action::Kind::send) ++taken_;
  if (taken_ == plan_.actions.size()) return false;
  const Action& action = plan_.actions[taken_];
  const bool overwrites = action.kind == Action::Kind::combine || action.kind == Action::Kind::merge;
  if (overwrites && !all_left()) return false;
  if (action.kind == Action::Kind::combine) {
    combine(action.range);
    ++taken_;
    return true;
  }
  std::optional<net::Message> message = next_from(action);
  if (!message) return false;
  const std::span<const std::byte> payload = message->payload;
  switch (action.kind) {
    case Action::Kind::receive:
      if (!payload.empty() && payload.data() != at(action.range.begin))
        std::memcpy(at(action.range.begin), payload.data(), payload.size());
      break;
    case Action::Kind::reduce:
    case Action::Kind::merge: {
      const std::byte* from[] = {at(action.range.begin), payload.data()};
      if (action.kind == Action::Kind::merge && action.peer < group_.rank()) std::swap(from[0], from[1]);
      std::byte* const to[] = {at(action.range.begin)};
      // A mean is divided once, at the end.
      const ReduceOp partial = op_.kind() == ReduceOp::Kind::mean && !action.last ? ReduceOp::Kind::sum : op_;
      reduce(partial, data_.type, from, to, action.range.size(), 1.0 / static_cast<double>(said_.ranks));
      break;
    }
    case Action::Kind::collect:
      collected_.push_back({action.peer, std::move(*message)});
      break;
    default:
      break;
  }
  ++taken_;
  return true;
}

std::optional<net::Message> LinkOperation::next_from(const Action& action) {
  const auto found =
      std::find_if(inbox_.begin(), inbox_.end(), [&](const Arrived& each) { return each.from == action.peer; });
  if (found == inbox_.end()) return std::nullopt;
  net::Message message = std::move(found->message);
  inbox_.erase(found);
  if (message.header.range() != action.range || message.payload.size() != action.range.size() * data_.type.bytes())
    group_.engine().break_all(Error(
        ErrorKind::protocol, fmt::format("[ring] rank {} sent [{}, {}) of {}, expected [{}, {})",
                                         group_.name(action.peer), message.header.begin, message.header.end,
                                         name_of(said_.call, said_.number), action.range.begin, action.range.end)));
  return message;
}

void LinkOperation::combine(Range range) {
  std::vector<const std::byte*> from(group_.size(), at(range.begin));
  for (const Arrived& each : collected_) from[each.from] = each.message.payload.data();
  std::byte* const to[] = {at(range.begin)};
  reduce(op_, data_.type, from, to, range.size(), 1.0 / static_cast<double>(said_.ranks));
  collected_.clear();
}

std::span<std::byte> LinkOperation::place(std::size_t from, Range range) const {
  // Which action a message is for, its place among those of its rank says: those that wait in the inbox come first. Its
  // range does not, as a ring receives each part twice from its neighbour, first to be reduced.
  auto waiting =
      std::count_if(inbox_.begin(), inbox_.end(), [&](const Arrived& arrived) { return arrived.from == from; });
  for (std::size_t i = taken_; i < plan_.actions.size(); ++i) {
    const Action& action = plan_.actions[i];
    const bool arrives = action.kind != Action::Kind::send && action.kind != Action::Kind::combine;
    if (!arrives || action.peer != from || waiting-- > 0) continue;
    if (action.kind != Action::Kind::receive || action.range != range) return {};
    return {at(range.begin), range.size() * data_.type.bytes()};
  }
  return {};
}

// The engine.

LinkEngine::LinkEngine(net::Transport& transport, std::size_t rank, std::size_t ranks, LinkOptions options)
    : transport_(transport),
      rank_(rank),
      ranks_(ranks),
      options_(std::move(options)),
      clock_(options_.clock != nullptr ? *options_.clock : system_clock_) {
  transport_.place_payloads([this](const net::FrameHeader& header) {
    const auto found = groups_.find(header.group);
    return found == groups_.end() ? std::span<std::byte>() : found->second->place(header);
  });
  if (options_.background) thread_ = std::thread([this] { run(); });
}

LinkEngine::~LinkEngine() {
  transport_.place_payloads({});
  if (thread_.joinable()) {
    {
      ++wanted_;
      transport_.wake();
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
}

void LinkEngine::advance_all() {
  for (const auto& [id, group] : groups_) group->step();
}

void LinkEngine::add(std::uint32_t id, LinkGroup& group) {
  groups_[id] = &group;
  std::vector<net::Message> waiting = std::move(homeless_);
  homeless_.clear();
  for (net::Message& message : waiting) {
    if (message.header.group == id)
      group.arrived(std::move(message));
    else
      homeless_.push_back(std::move(message));
  }
}

void LinkEngine::break_all(const Error& error) {
  break_off(error);
  throw error;
}

void LinkEngine::break_off(const Error& error) noexcept {
  if (broken_) return;
  broken_ = error;
  last_words_ = error.what();
  net::FrameHeader header;
  header.type = net::FrameType::failed;
  header.unit = static_cast<std::uint32_t>(error.kind());
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == rank_) continue;
    try {
      transport_.send({net::Role::worker, static_cast<std::uint32_t>(r)}, header,
                      std::as_bytes(std::span(last_words_)));
    } catch (const Error&) {  // it is the one that is lost
    }
  }
  let_words_leave();
}

/// Who hears that our links close before it hears why would take us for the cause.
void LinkEngine::let_words_leave() {
  const Moment limit = clock_.now() + kLastWords;
  const auto leaving = [&] {
    for (std::size_t r = 0; r < ranks_; ++r)
      if (r != rank_ && transport_.in_flight_bytes({net::Role::worker, static_cast<std::uint32_t>(r)}) > 0) return true;
    return false;
  };
  for (std::size_t errors = 0; leaving() && clock_.now() < limit;) {
    try {
      transport_.receive(clock_.now() + kLook);
    } catch (const Error&) {  // others break, too; but a transport that says so again and again sends nothing more
      if (++errors > ranks_) return;
    }
  }
}

/// Takes one message, if one comes in time.
bool LinkEngine::pump(Moment deadline) {
  std::optional<net::Message> message = transport_.receive(deadline);
  if (!message) return false;
  if (message->header.type == net::FrameType::failed) {
    // Passed on: the rank that found out may not reach the others before our links to them close.
    break_all(Error(static_cast<ErrorKind>(std::min<std::uint32_t>(message->header.unit, 7)),
                    net::one_line(message->payload)));
  }
  const auto found = groups_.find(message->header.group);
  if (found == groups_.end()) {
    homeless_.push_back(std::move(*message));
  } else {
    found->second->arrived(std::move(*message));
  }
  return true;
}

std::string LinkEngine::doing(const LinkOperation& operation, const LinkGroup& group) {
  return fmt::format("[ring] rank {}: in {}, waiting for rank {}", group.name(group.rank()),
                     name_of(operation.call(), operation.said().number), group.name(operation.missing()));
}

void LinkEngine::take_all() {
  if (broken_) throw *broken_;
  if (found_) throw *found_;
  // Where there is a thread, it takes what comes.
  while (!options_.background && pump(Moment::min())) {
  }
  advance_all();
}

void LinkEngine::take_next(Moment deadline) {
  if (broken_) throw *broken_;
  if (found_) throw *found_;
  pump(deadline);
  advance_all();
}

void LinkEngine::advance_for(LinkOperation& operation, LinkGroup& group) {
  try {
    take_all();
  } catch (const Error& error) {
    if (broken_) throw;
    break_all(error.with_context(doing(operation, group)));
  }
}

void LinkEngine::wait_for(LinkOperation& operation, LinkGroup& group) {
  std::optional<Moment> since;
  for (;;) {
    if (broken_) throw *broken_;
    advance_all();
    if (operation.finished()) return;
    try {
      if (found_) throw *found_;
      const Moment now = clock_.now();
      if (!since) since = now;
      if (pump(now + kLook)) {
        since = std::nullopt;
        continue;
      }
      if (options_.group.check) options_.group.check();
      group.probe(operation);
    } catch (const Error& error) {
      if (broken_) throw;
      break_all(error.with_context(doing(operation, group)));
    }
    const Nanoseconds waited = clock_.now() - *since;
    if (options_.group.op_timeout > Nanoseconds(0) && waited > options_.group.op_timeout)
      break_all(
          Error(ErrorKind::timeout, fmt::format("{}: nothing for {:.1f} s", doing(operation, group), seconds(waited))));
  }
}

/// Goes on with what is under way while the owner does something else.
void LinkEngine::run() {
  std::unique_lock lock(mutex_);
  const auto busy = [&] {
    return std::any_of(groups_.begin(), groups_.end(), [](const auto& each) { return !each.second->idle(); });
  };
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || (wanted_ == 0 && !broken_ && !found_ && busy()); });
    if (stop_) return;
    try {
      advance_all();
      if (busy()) pump(clock_.now() + kLook);
    } catch (const Error& error) {
      if (!broken_) found_ = error;  // the owner hears of it in its next call
    }
  }
}

// The group.

Tuning::Row LinkGroup::choice(std::size_t bytes) const {
  const LinkOptions& options = engine_->options();
  Tuning::Row row = options.tuning.pick(size(), bytes);
  if (options.algorithm) row.algorithm = *options.algorithm;
  if (options.segment_bytes > 0) row.segment_bytes = options.segment_bytes;
  return row;
}

Plan LinkGroup::plan(Collective collective, std::size_t count, ElementType type, const Parts& parts,
                     std::size_t root) const {
  const std::size_t bytes = count * type.bytes();
  const Tuning::Row row = choice(bytes);
  const Planner planner{rank_, size(), std::max<std::size_t>(1, row.segment_bytes / type.bytes())};
  const bool small = row.algorithm == Algorithm::exchange || row.algorithm == Algorithm::doubling;
  switch (collective) {
    case Collective::all_reduce:
      return planner.all_reduce(row.algorithm, count);
    case Collective::reduce_scatter:
      return planner.reduce_scatter(parts, small);
    case Collective::all_gather:
      return planner.all_gather(parts, small);
    case Collective::broadcast:
      return planner.broadcast(count, root, small);
    case Collective::barrier:
      return planner.barrier();
    default:
      return {};
  }
}

std::string_view LinkGroup::plan_name(Collective collective, std::size_t bytes) const {
  const Tuning::Row row = choice(bytes);
  const bool small = row.algorithm == Algorithm::exchange || row.algorithm == Algorithm::doubling;
  return collective == Collective::all_reduce  ? to_string(row.algorithm)
         : collective == Collective::barrier   ? "dissemination"
         : collective == Collective::broadcast ? (small ? "tree" : "chain")
         : small                               ? "exchange"
                                               : "ring";
}

std::string LinkGroup::reached() const {
  return size() < 2 ? "one rank" : engine_->transport().describe(peer(rank_ == 0 ? 1 : 0));
}

std::string LinkGroup::describe(Collective collective, std::size_t count, ElementType type) const {
  return fmt::format("{}: {}, {}", to_string(collective), plan_name(collective, count * type.bytes()), reached());
}

std::string LinkGroup::way(Collective collective, std::size_t count, ElementType type) const {
  return fmt::format("{} over {}", plan_name(collective, count * type.bytes()), reached());
}

Work LinkGroup::start(const Call& call, Vector data, const ReduceOp& op, Plan made) {
  return engine_->locked([&] {
    engine_->throw_if_broken();
    const Announced said = outer_ ? *outer_ : Announced{call, numbers_, size()};
    return launch(std::make_shared<LinkOperation>(*this, numbers_++, said, data, op, std::move(made)));
  });
}

Work LinkGroup::message(std::size_t count, ElementType type, std::byte* data, std::size_t from, std::size_t to) {
  check_rank(from, size());
  check_rank(to, size());
  if (from == to) fail(ErrorKind::usage, "rank {} sends to itself", from);
  return engine_->locked([&] {
    engine_->throw_if_broken();
    const bool sends = from == rank_;
    const std::uint64_t number = sends ? sent_messages_[to]++ : received_messages_[from]++;
    const Call call{sends ? Collective::send : Collective::recv, {}, type, static_cast<std::uint32_t>(to), count, 0};
    const std::size_t segment = choice(count * type.bytes()).segment_bytes / type.bytes();
    Plan made;
    std::size_t begin = 0;
    do {  // an empty message is one, too
      const Range range{begin, std::min(begin + segment, count)};
      made.actions.push_back(
          {sends ? Action::Kind::send : Action::Kind::receive, static_cast<std::uint32_t>(sends ? to : from), range});
      begin += segment;
    } while (begin < count);
    return launch(std::make_shared<LinkOperation>(*this, number, Announced{call, number}, Vector(data, count, type),
                                                  ReduceOp(), std::move(made)));
  });
}

Work LinkGroup::launch(std::shared_ptr<LinkOperation> operation) {
  operations_.push_back(operation);
  if (!early_.empty()) {
    std::vector<net::Message> waiting = std::move(early_);
    early_.clear();
    for (net::Message& message : waiting) arrived(std::move(message));
  }
  operation->step();
  return Work(std::move(operation));
}

void LinkGroup::send_frame(const LinkOperation& operation, std::size_t to, Range range,
                           std::span<const std::byte> payload) {
  net::FrameHeader header = header_of(operation);
  header.set_range(range);
  engine_->transport().send(peer(to), header, payload);
  moved_.sent += payload.size();
}

net::FrameHeader LinkGroup::header_of(const LinkOperation& operation) const {
  net::FrameHeader header;
  put(operation.call(), header);
  header.group = id_;
  header.step = operation.number();
  return header;
}

void LinkGroup::probe(const LinkOperation& operation) {
  const std::size_t to = operation.missing();
  if (to == rank_ || operation.call().collective >= Collective::send) return;
  net::FrameHeader header = header_of(operation);
  header.flags = net::FrameHeader::kProbe;
  engine_->transport().send(peer(to), header, {});
}

std::size_t LinkGroup::rank_of(net::Peer peer) const {
  const auto found = std::find(members_.begin(), members_.end(), peer.rank);
  if (peer.role != net::Role::worker || found == members_.end())
    fail(ErrorKind::protocol, "[ring] {} sent a frame of a group that it is not in", to_string(peer));
  return static_cast<std::size_t>(found - members_.begin());
}

LinkOperation* LinkGroup::find(const net::FrameHeader& header, std::size_t from) const {
  const bool message = header.type == net::FrameType::message;
  for (const auto& operation : operations_) {
    const Call& call = operation->call();
    if (call.collective == Collective::send || operation->number() != header.step) continue;
    if (message != (call.collective == Collective::recv)) continue;
    if (message && operation->missing() != from) continue;
    return operation.get();
  }
  return nullptr;
}

void LinkGroup::check_call(const LinkOperation& operation, std::size_t from, const net::FrameHeader& header) {
  const Call theirs = call_of(header);
  const Call ours = as_sent(operation.call());
  if (theirs != ours)
    engine_->break_all(
        Error(ErrorKind::usage, mismatch(operation.said().number, name(rank_), ours, name(from), theirs)));
}

void LinkGroup::arrived(net::Message message) {
  const std::size_t from = rank_of(message.header.sender());
  LinkOperation* operation = find(message.header, from);
  if ((message.header.flags & net::FrameHeader::kProbe) != 0) {
    if (operation != nullptr) check_call(*operation, from, message.header);
    return;
  }
  if (operation == nullptr) {
    early_.push_back(std::move(message));
    return;
  }
  check_call(*operation, from, message.header);
  moved_.received += message.payload.size();
  operation->take(from, std::move(message));
  if (operation->step()) step();
}

std::span<std::byte> LinkGroup::place(const net::FrameHeader& header) {
  if (header.payload_bytes == 0) return {};
  const auto member = std::find(members_.begin(), members_.end(), header.sender_rank);
  if (member == members_.end()) return {};
  const auto from = static_cast<std::size_t>(member - members_.begin());
  const LinkOperation* operation = find(header, from);
  if (operation == nullptr || call_of(header) != as_sent(operation->call())) return {};
  const std::span<std::byte> place = operation->place(from, header.range());
  return place.size() == header.payload_bytes ? place : std::span<std::byte>();
}

void LinkGroup::step() {
  for (const auto& operation : operations_) operation->step();
  std::erase_if(operations_, [](const auto& operation) { return operation->finished(); });
}

std::unique_ptr<ProcessGroup> LinkGroup::split(std::uint32_t colour, std::uint32_t key) {
  const Split split = agree_on_split(*this, colour, key, engine_->next_group());
  engine_->next_group() = split.next_group;
  return part(split.ranks, split.id, {});
}

std::unique_ptr<InnerGroup> LinkGroup::part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                            std::vector<std::size_t> names) {
  std::vector<std::uint32_t> members;
  for (const std::size_t r : ranks) members.push_back(members_[r]);
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  return std::make_unique<LinkGroup>(engine_, id, std::move(members), std::move(names),
                                     static_cast<std::size_t>(own - ranks.begin()));
}

}  // namespace

std::unique_ptr<InnerGroup> make_link_group(net::Transport& transport, std::size_t rank, std::size_t ranks,
                                            LinkOptions options) {
  std::vector<std::uint32_t> members(ranks);
  for (std::size_t r = 0; r < ranks; ++r) members[r] = static_cast<std::uint32_t>(r);
  return std::make_unique<LinkGroup>(std::make_shared<LinkEngine>(transport, rank, ranks, std::move(options)), 0,
                                     std::move(members), std::vector<std::size_t>(), rank);
}

}  // namespace psring::ring
