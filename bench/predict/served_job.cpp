#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <psring/bench/predict/served_cards.h>
#include <psring/bench/predict/served_job.h>
#include <psring/bench/predict/served_outbox.h>
#include <psring/bench/predict/served_pieces.h>
#include <psring/bench/predict/served_state.h>
#include <psring/bench/predict/served_transfers.h>
#include <psring/common/base/consistency.h>

namespace psring::bench {
namespace {

using Kind = ServedFrame::Kind;
using Action = WorkerAction::Kind;

constexpr std::uint32_t kFirstSteps = 3;  // until the queues are as they stay
constexpr std::uint32_t kMeasured = 4;
constexpr std::uint32_t kSteps = kFirstSteps + kMeasured + 1;  // without a next step, the last one would end earlier

class ServedJob {
 public:
  /// `seed`: orders the events of one moment. REQUIRES: all others outlive this.
  ServedJob(const TimedJob& job, const std::vector<WorkerAction>& step, const ServedPieces& pieces,
            const ServedPlaces& places, std::uint64_t seed);

  TimedPeriod play();

 private:
  bool standalone(std::size_t server) const { return server < places_.standalone(); }
  const ServedPiece& piece_of(std::size_t server, std::size_t piece) const {
    return pieces_.of(standalone(server))[piece];
  }
  /// With --local-reduce one worker of a host pushes for all.
  bool pushes(std::size_t worker) const {
    const std::size_t host = job_.mesh.hosts > 1 ? places_.per_host() : places_.workers();
    return !job_.job.local_reduce || worker % host == 0;
  }
  bool whole_step(const ServedPiece& piece) const {
    return !piece.has_rows && !each_push_updates_ && (job_.job.clip_norm > 0 || job_.job.optimizer == "lamb");
  }
  bool each_push_updates(const ServedPiece& piece) const {
    return piece.has_rows ? each_push_updates_rows_ : each_push_updates_;
  }
  void begin_count();
  void end_count();
  void advance(std::uint32_t worker, double now);
  void refill(std::size_t place, std::size_t to, double now);
  void send_unit(std::uint32_t worker, const WorkerAction& action, double now);
  void take(std::uint32_t index, double now);
  void answer(std::uint32_t server, std::size_t piece, std::uint32_t worker, Kind kind, double bytes);
  void serve(std::uint32_t server, const ServedFrame& frame, double now);
  double take_push(std::uint32_t server, const ServedFrame& push);
  void update(std::uint32_t server, std::size_t piece);
  void answer_pulls(std::uint32_t server, std::size_t piece);
  void begin_work(std::uint32_t server, double seconds, double now);
  void send_answers(std::uint32_t server, double now);
  void end_work(std::uint32_t server, double now);
  void update_all(double now);
  void wake(std::uint32_t worker, double now);

  const TimedJob& job_;
  const std::vector<WorkerAction>& actions_;
  const ServedPieces& pieces_;
  const ServedPlaces& places_;
  ServedCards cards_;
  ServedTransfers transfers_;
  std::uint32_t transfers_done_ = 0;
  std::vector<ServedOutbox> outboxes_;  ///< by place
  /// ssp, asp: pulls are answered with the values of the moment. Workers are alike: ssp's bound holds nobody up.
  const bool each_push_updates_;
  const bool each_push_updates_rows_;
  std::size_t pushers_ = 0;
  std::size_t micros_ = 1;
  std::vector<ServedWorker> workers_;
  std::vector<ServedServer> servers_;
  std::size_t incomplete_ = 0;  ///< whole steps: trained pieces of all servers that lack pushes
  TimedPeriod counted_;         ///< sums over the measured steps
  std::vector<double> ends_;    ///< by step: when the last worker was through
};

ServedJob::ServedJob(const TimedJob& job, const std::vector<WorkerAction>& step, const ServedPieces& pieces,
                     const ServedPlaces& places, std::uint64_t seed)
    : job_(job),
      actions_(step),
      pieces_(pieces),
      places_(places),
      cards_(job, places_, seed),
      transfers_(job, places_),
      outboxes_(make_served_outboxes(job, places_, cards_)),
      each_push_updates_(parse_consistency(job.job.consistency).each_push_updates),
      each_push_updates_rows_(parse_consistency(job.job.row_consistency()).each_push_updates),
      workers_(places_.workers(), ServedWorker(job.work.layout.units.size() + job.work.rows.size())),
      servers_(places_.servers()),
      ends_(kSteps, 0) {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) pushers_ += pushes(worker) ? 1 : 0;
  for (const WorkerAction& action : step)
    if (action.kind == Action::push) micros_ = std::max(micros_, action.micro + 1);
  for (std::size_t server = 0; server < servers_.size(); ++server) {
    servers_[server].pieces.resize(pieces_.of(standalone(server)).size());
    for (HeldPiece& piece : servers_[server].pieces) piece.pushes.resize(micros_);
    for (const ServedPiece& piece : pieces_.of(standalone(server)))
      incomplete_ += piece.trained && !piece.has_rows ? 1 : 0;
  }
}

TimedPeriod ServedJob::play() {
  // Calls are numbered: workers, then servers, then the update of a whole step, and the end of a transfer.
  const auto workers = static_cast<std::uint32_t>(workers_.size());
  const auto servers = static_cast<std::uint32_t>(servers_.size());
  const double within_ns = 1e9 * begins_within_s(job_, actions_, places_.between().bits_per_second);
  for (std::uint32_t worker = 0; worker < workers; ++worker) cards_.call(worker, std::floor(cards_.draw() * within_ns));
  while (!cards_.idle()) {
    const ServedCards::Event event = cards_.next();
    if (event.what == ServedCards::What::departs) {
      refill(cards_.sender(event.index), cards_.receiver(event.index), event.at_ns);
    } else if (event.what == ServedCards::What::handles) {
      take(event.index, event.at_ns);
    } else if (event.index < workers) {
      advance(event.index, event.at_ns + (sleeps(job_.job) ? cards_.turn_ns(event.index, event.at_ns) : 0));
    } else if (event.index < workers + servers) {
      end_work(event.index - workers, event.at_ns);
    } else if (event.index == workers + servers) {
      update_all(event.at_ns);
    } else {
      ++transfers_done_;  // in a job some workers have the result first, and are then the first at all servers
      const auto first = static_cast<std::uint32_t>(cards_.draw() * workers);
      for (std::uint32_t i = 0; i < workers; ++i) wake((first + i) % workers, event.at_ns + i);
    }
  }
  constexpr double kCounted = kMeasured;
  TimedPeriod period = counted_;
  period.step_s = (ends_[kFirstSteps + kMeasured - 1] - ends_[kFirstSteps - 1]) * 1e-9 / kCounted;
  for (double& busy : period.busy_s) busy /= kCounted;
  return period;
}

/// Takes the worker's actions until one waits.
void ServedJob::advance(std::uint32_t worker, double now) {
  ServedWorker& self = workers_[worker];
  if (!self.begun) {
    self.begun = true;
    for (std::size_t unit = 0; job_.kind.servers && !job_.kind.gathers && unit < job_.work.layout.units.size(); ++unit)
      send_unit(worker, {.kind = Action::pull, .unit = unit}, now);
  }
  while (self.step < kSteps) {
    for (; self.next < actions_.size(); ++self.next) {
      const WorkerAction& action = actions_[self.next];
      if (action.kind == Action::compute) {
        ++self.next;
        return cards_.call(worker, now + ServedCards::whole_ns(action.seconds));
      }
      self.waits = !self.has(action, transfers_done_);
      if (self.waits && self.in_collective(actions_)) return;
      if (self.waits) return outboxes_[worker].flush(now);
      if (action.kind == Action::transfer)
        cards_.send(transfers_.begin(worker, self.transfers++, *action.legs), true, now);
      send_unit(worker, action, now);
    }
    self.next = 0;
    if (job_.kind.servers) outboxes_[worker].flush(now);
    ends_[self.step] = std::max(ends_[self.step], now);
    if (worker == 0 && self.step + 1 == kFirstSteps) begin_count();
    if (worker == 0 && self.step + 1 == kFirstSteps + kMeasured) end_count();
    ++self.step;
  }
}

void ServedJob::begin_count() {
  cards_.reset_busy();
  for (ServedServer& server : servers_) server.work_s = 0;
}

void ServedJob::end_count() {
  for (std::size_t station = 0; station < counted_.busy_s.size(); ++station)
    counted_.busy_s[station] = cards_.busy_s(static_cast<StepStation>(station));
  double& busiest = counted_.busy_s[static_cast<std::size_t>(StepStation::server)];
  for (const ServedServer& server : servers_) busiest = std::max(busiest, server.work_s);
}

/// A frame has left: there may be room for more. A worker looks when it waits, a server when it does not work.
void ServedJob::refill(std::size_t place, std::size_t to, double now) {
  outboxes_[place].left(to);
  if (places_.is_worker(place) ? !workers_[place].waits || workers_[place].in_collective(actions_)
                               : servers_[place - places_.workers()].busy)
    return;
  outboxes_[place].flush(now);
}

/// Sends the frames of a push or pull of a unit; the first ones go to another server for each worker. Those of a table
/// go to one server after the other (worker::cut_rows).
void ServedJob::send_unit(std::uint32_t worker, const WorkerAction& action, double now) {
  const bool push = action.kind == Action::push && pushes(worker);
  const bool pull = action.kind == Action::pull || action.pulls;
  if (!push && !pull) return;
  ServedWorker& self = workers_[worker];
  const std::size_t all = places_.servers();
  const std::size_t own = worker + places_.standalone();
  const std::size_t first = own < all ? own + 1 : worker % all;
  std::uint32_t count = 0;
  const bool of_table = action.unit >= job_.work.layout.units.size();
  const std::vector<ServedPieces::Turn>& turns = pieces_.turns(action.unit);
  for (std::size_t i = 0; i < turns.size() * all; ++i) {
    const std::size_t server = of_table ? i / turns.size() : (first + i) % all;
    const std::size_t number = turns[of_table ? i % turns.size() : i / all].piece(standalone(server));
    if (number == ServedPieces::Turn::kNone) continue;
    const ServedPiece& piece = piece_of(server, number);
    const std::uint32_t version = self.step + (action.pulls || action.after_update ? 1 : 0);
    outboxes_[worker].add({.kind = push ? Kind::push : Kind::pull,
                           .pulls = push && pull,
                           .worker = worker,
                           .server = static_cast<std::uint32_t>(server),
                           .piece = static_cast<std::uint32_t>(number),
                           .micro = static_cast<std::uint32_t>(action.micro),
                           .version = piece.trained ? version : 0,
                           .bytes = push ? piece.pushed_bytes : piece.asked_bytes,
                           .headers = piece.frames},
                          action.unit);
    ++count;
  }
  outboxes_[worker].flush(now);
  if (pull) self.values_missing[action.unit] += self.values_asked[action.unit] = count;
  if (push && !pull) self.pushes_missing[action.unit] = count;
}

void ServedJob::take(std::uint32_t index, double now) {
  const ServedFrame frame = cards_.frame(index);
  cards_.drop(index);
  if (frame.kind == Kind::push || frame.kind == Kind::pull) {
    ServedServer& server = servers_[frame.server];
    return server.busy ? server.inbox.push_back(frame) : serve(frame.server, frame, now);
  }
  if (frame.kind == Kind::early_values) return;
  if (frame.kind == Kind::transfer) {
    const auto ends = static_cast<std::uint32_t>(workers_.size() + servers_.size() + 1);
    if (const auto later_s = transfers_.take(frame)) cards_.call(ends, now + ServedCards::whole_ns(*later_s));
    return;
  }
  ServedWorker& worker = workers_[frame.worker];
  const std::size_t unit = piece_of(frame.server, frame.piece).unit;
  --(frame.kind == Kind::values ? worker.values_missing : worker.pushes_missing)[unit];
  wake(frame.worker, now);
}

void ServedJob::wake(std::uint32_t worker, double now) {
  ServedWorker& self = workers_[worker];
  if (!self.waits || !self.has(actions_[self.next], transfers_done_)) return;
  self.waits = false;
  advance(worker, now);
}

void ServedJob::answer(std::uint32_t server, std::size_t piece, std::uint32_t worker, Kind kind, double bytes) {
  servers_[server].answers.push_back({.kind = kind,
                                      .worker = worker,
                                      .server = server,
                                      .piece = static_cast<std::uint32_t>(piece),
                                      .bytes = bytes,
                                      .headers = piece_of(server, piece).frames});
}

void ServedJob::serve(std::uint32_t server, const ServedFrame& frame, double now) {
  HeldPiece& piece = servers_[server].pieces[frame.piece];
  const ServedPiece& about = piece_of(server, frame.piece);
  if (frame.kind == Kind::pull && about.in_parts)  // the rows that the present step does not train are known
    answer(server, frame.piece, frame.worker, Kind::early_values, about.early_bytes);
  if (frame.kind == Kind::pull || frame.pulls) piece.waiting.push_back({frame.worker, frame.version});
  double work = 0;
  if (frame.kind == Kind::push) work = take_push(server, frame);
  answer_pulls(server, frame.piece);
  if (whole_step(about) && incomplete_ == 0 && frame.kind == Kind::push) {
    const MessageCosts& costs = job_.costs.exchange;
    const double verdict = 2 * ServedCards::whole_ns(seconds(places_.between().delay) + costs.hop_s);
    cards_.call(static_cast<std::uint32_t>(workers_.size() + servers_.size()),
                now + ServedCards::whole_ns(work) + verdict);
  }
  begin_work(server, work, now);
}

/// Returns the time that the server works on the push.
double ServedJob::take_push(std::uint32_t server, const ServedFrame& push) {
  HeldPiece& held = servers_[server].pieces[push.piece];
  const ServedPiece& piece = piece_of(server, push.piece);
  if (each_push_updates(piece)) {
    if (!push.pulls)
      servers_[server].answers.push_back(
          {.kind = Kind::acknowledgement, .worker = push.worker, .server = server, .piece = push.piece});
    update(server, push.piece);
    return piece.update_s;
  }
  ++held.pushes[push.micro];
  if (!push.pulls) held.unacknowledged.emplace_back(push.worker, push.micro);
  double work = 0;
  while (held.micro < micros_ && held.pushes[held.micro] == pushers_) {
    work += piece.aggregate_s;
    std::erase_if(held.unacknowledged, [&](const auto& waiting) {
      if (waiting.second != held.micro) return false;
      servers_[server].answers.push_back(
          {.kind = Kind::acknowledgement, .worker = waiting.first, .server = server, .piece = push.piece});
      return true;
    });
    ++held.micro;
  }
  if (held.micro < micros_) return work;
  if (whole_step(piece)) {
    held.micro = 0;
    std::fill(held.pushes.begin(), held.pushes.end(), 0U);
    --incomplete_;
    return work;
  }
  update(server, push.piece);
  return work + piece.update_s;
}

void ServedJob::update(std::uint32_t server, std::size_t piece) {
  HeldPiece& held = servers_[server].pieces[piece];
  ++held.version;
  held.micro = 0;
  std::fill(held.pushes.begin(), held.pushes.end(), 0U);
}

void ServedJob::answer_pulls(std::uint32_t server, std::size_t piece) {
  HeldPiece& held = servers_[server].pieces[piece];
  const ServedPiece& about = piece_of(server, piece);
  std::erase_if(held.waiting, [&](const auto& pull) {
    if (!each_push_updates(about) && pull.second > held.version) return false;
    answer(server, piece, pull.first, Kind::values, about.answer_bytes - (about.in_parts ? about.early_bytes : 0));
    return true;
  });
}

/// The answers to a frame leave when the work on the frame is done.
void ServedJob::begin_work(std::uint32_t server, double seconds, double now) {
  if (!(seconds > 0)) return send_answers(server, now);
  ServedServer& self = servers_[server];
  self.busy = true;
  self.work_s += seconds;
  const double work = ServedCards::whole_ns(seconds);
  const double end = std::max(now + work, cards_.work(places_.place_of_server(server), now, work));
  cards_.call(static_cast<std::uint32_t>(workers_.size() + server), end);
}

void ServedJob::send_answers(std::uint32_t server, double now) {
  ServedOutbox& outbox = outboxes_[places_.place_of_server(server)];
  for (const ServedFrame& answer : servers_[server].answers) outbox.add(answer, piece_of(server, answer.piece).unit);
  servers_[server].answers.clear();
  outbox.flush(now);
}

void ServedJob::end_work(std::uint32_t server, double now) {
  ServedServer& self = servers_[server];
  send_answers(server, now);
  self.busy = false;
  while (!self.busy && !self.inbox.empty()) {
    const ServedFrame frame = self.inbox.front();
    self.inbox.pop_front();
    serve(server, frame, now);
  }
}

/// The servers know that the step's gradients are whole, and their norm.
void ServedJob::update_all(double now) {
  for (std::uint32_t server = 0; server < servers_.size(); ++server) {
    double work = 0;
    for (std::size_t piece = 0; piece < servers_[server].pieces.size(); ++piece) {
      const ServedPiece& about = piece_of(server, piece);
      if (!about.trained || about.has_rows) continue;
      ++incomplete_;
      work += about.update_s;
      update(server, piece);
      answer_pulls(server, piece);
    }
    begin_work(server, work, now);
  }
}

}  // namespace

/// The order of frames that are ready at the same moment is drawn; several orders are played if that takes no time.
TimedPeriod served_period(const TimedJob& job, const std::vector<WorkerAction>& step) {
  const ServedPieces pieces(job);
  const ServedPlaces places(job, pieces.waves());
  constexpr double kFewFrames = 3'000;  // in a step
  constexpr double kMostRuns = 20;
  const double frames = static_cast<double>(places.workers() * places.servers()) * pieces.waves();
  const double runs = std::clamp(std::floor(kFewFrames / frames), 1.0, kMostRuns);
  TimedPeriod mean;
  for (std::uint64_t seed = 0; static_cast<double>(seed) < runs; ++seed) {
    const TimedPeriod one = ServedJob(job, step, pieces, places, seed).play();
    mean.step_s += one.step_s / runs;
    for (std::size_t station = 0; station < mean.busy_s.size(); ++station)
      mean.busy_s[station] += one.busy_s[station] / runs;
  }
  return mean;
}

}  // namespace psring::bench
