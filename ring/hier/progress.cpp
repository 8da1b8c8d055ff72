#include <algorithm>
#include <utility>

#include <psring/ring/hier/progress.h>
#include <psring/ring/shm/control.h>

namespace psring::ring {

InnerGroups make_inner_groups(const Hierarchy& hierarchy, std::uint32_t id, InnerGroup& host,
                              const std::vector<std::size_t>& places, std::unique_ptr<InnerGroup> links,
                              std::uint32_t links_id) {
  const std::vector<std::size_t>& names = hierarchy.on_host(hierarchy.host());
  InnerGroups inner{host.part(places, 2 * id + 1, names), host.part(places, 2 * id + 2, names), std::move(links), {}};
  for (const std::size_t c : hierarchy.own_columns()) {
    const std::vector<std::size_t> ranks = hierarchy.column(c);
    inner.columns.push_back(inner.links->part(ranks, links_id + 1 + static_cast<std::uint32_t>(c), ranks));
  }
  return inner;
}

bool HierTask::advance() {
  if (!finished_) progress_.advance();
  return finished_;
}

void HierTask::wait() {
  if (!finished_) progress_.wait_for(*this);
}

HierCollective::HierCollective(HierProgress& progress, const Announced& said, const Request& request,
                               Hierarchy::Stages stages)
    : HierTask(progress, said), data_(request.data), op_(request.op), stages_(std::move(stages)) {}

Work HierCollective::begin(InnerGroup& group, const Hierarchy::Stage& stage, const ReduceOp& op) const {
  const Vector data = data_.part(stage.range);
  const bool barrier = stage.collective == Collective::barrier;
  Call call{.collective = stage.collective, .root = static_cast<std::uint32_t>(stage.root)};
  if (!barrier) {
    call.op = op.kind();
    call.type = data.type;
    call.count = data.count;
  }
  return group.start(
      {.call = call, .data = barrier ? Vector() : data, .op = op, .parts = &stage.parts, .outer = &said()});
}

/// A mean is divided between the hosts, where the sum ends.
void HierCollective::go_down(InnerGroup& group) {
  const bool ends_here = stages_.between.empty() || op_.kind() != ReduceOp::Kind::mean;
  down_ = begin(group, stages_.down, ends_here ? op_ : ReduceOp(ReduceOp::Kind::sum));
  at_ = At::down;
}

void HierCollective::go_between(const std::vector<std::unique_ptr<InnerGroup>>& columns) {
  for (std::size_t i = 0; i < columns.size(); ++i) between_.push_back(begin(*columns[i], stages_.between[i], op_));
  at_ = At::between;
}

bool HierCollective::is_through() {
  while (through_ < between_.size() && between_[through_].done()) ++through_;
  return through_ == between_.size();
}

void HierCollective::go_up(InnerGroup& group) {
  if (stages_.up) up_ = begin(group, *stages_.up, op_);
  at_ = At::up;
}

std::vector<std::size_t> HierCollective::awaited() const {
  const Work& work = at_ == At::down      ? down_
                     : at_ == At::between ? between_[std::min(through_, between_.size() - 1)]
                                          : up_;
  return work.awaited();
}

namespace {

/// The wait in one kind of inner group while the other kind has work in flight, too.
constexpr Nanoseconds kTurn = std::chrono::milliseconds(1);
/// Collectives in the inner groups at a time; the others are queued. With half of the operations that a rank may be
/// ahead in shared memory, a call on an inner group never waits.
constexpr std::size_t kInFlight = kShmPosts / 2;

}  // namespace

HierProgress::HierProgress(const Hierarchy& hierarchy, const InnerGroups& inner, GroupOptions options,
                           const Clock* clock)
    : hierarchy_(hierarchy),
      inner_(inner),
      options_(std::move(options)),
      clock_(clock != nullptr ? *clock : system_clock_),
      sent_(hierarchy.size(), 0),
      received_(hierarchy.size(), 0) {}

Work HierProgress::start_collective(const Request& request) {
  if (broken_) throw Error(*broken_);
  const Call& call = request.call;
  const Parts none;
  const Parts& parts = request.parts != nullptr ? *request.parts : none;
  auto task = std::make_shared<HierCollective>(
      *this, request.announced(reached_.called, hierarchy_.size()), request,
      hierarchy_.stages(call.collective, call.count, call.type.bytes(), parts, call.root));
  ++reached_.called;
  queue_.push_back(task);
  advance();
  return Work(std::move(task));
}

Work HierProgress::start_message(const Request& request) {
  if (broken_) throw Error(*broken_);
  const std::size_t peer = request.peer;
  const bool far = hierarchy_.host_of(peer) != hierarchy_.host();
  InnerGroup& group = far ? *inner_.links : *inner_.down;
  const std::size_t there = far ? peer : hierarchy_.place_of(peer);
  const bool sends = request.call.collective == Collective::send;
  Work work = sends ? group.send(request.data, there) : group.recv(request.data, there);
  const std::uint64_t number = sends ? sent_[peer]++ : received_[peer]++;
  auto task = std::make_shared<HierMessage>(*this, Announced{request.call, number}, std::move(work), peer, far);
  messages_.push_back(task);
  advance();
  return Work(std::move(task));
}

void HierProgress::advance() {
  if (broken_) throw Error(*broken_);
  try {
    advance_all();
  } catch (const Error& error) {
    end(error);
  }
}

/// Returns true if anything went on.
bool HierProgress::advance_all() {
  const Reached before = reached_;
  const std::size_t messages = messages_.size();
  inner_.links->advance();
  inner_.down->advance();
  inner_.up->advance();
  for (Reached last;;) {
    last = reached_;
    while (reached_.down < std::min(reached_.called, reached_.finished + kInFlight))
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

void HierProgress::wait_for(const HierTask& task) {
  if (broken_) throw Error(*broken_);
  Moment since = clock_.now();
  Moment checked = since;
  Moved bytes = moved();
  try {
    for (;;) {
      const std::uint32_t seen = inner_.down->watch();
      const bool went_on = advance_all();
      if (task.finished()) return inner_.down->leave();
      const Moment now = clock_.now();
      if (went_on) {
        since = checked = now;
        continue;
      }
      if (now - checked >= kPeerCheck) {
        checked = now;
        if (const Moved more = moved(); more != bytes) {
          bytes = more;
          since = now;
        }
        check_peers(since);
      }
      rest(task, seen);
    }
  } catch (const Error& error) {
    inner_.down->leave();
    end(error, &task);
  }
}

/// Waits in shared memory, or for messages: where the next event is expected.
void HierProgress::rest(const HierTask& task, std::uint32_t seen) {
  bool near = reached_.between < reached_.down || reached_.finished < reached_.up;
  bool far = reached_.up < reached_.between;
  for (const auto& message : messages_) (message->waits_for_links() ? far : near) = true;
  const Moment until = clock_.now() + (near && far ? kTurn : kPeerCheck);
  if (!far || (near && !task.waits_for_links())) return inner_.down->rest(seen, until);
  inner_.down->leave();
  inner_.links->rest(0, until);
}

void HierProgress::check_peers(Moment since) {
  if (options_.check) options_.check();
  for (const auto& column : inner_.columns) column->probe();
  const Nanoseconds waited = clock_.now() - since;
  if (options_.op_timeout > Nanoseconds(0) && waited > options_.op_timeout)
    fail(ErrorKind::timeout, "nothing for {:.1f} s", seconds(waited));
}

std::string HierProgress::doing(const HierTask& task) const {
  return waiting_in(hierarchy_.rank(), task.said().call, task.said().number, task.awaited());
}

/// If an inner group has ended, all ranks get its error, even if this rank found another error meanwhile. Any other
/// error gets this rank's operation as context: the message that is waited for, or the collective that holds up all
/// others.
void HierProgress::end(const Error& error, const HierTask* waiting) {
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

Moved HierProgress::moved() const {
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

}  // namespace psring::ring
