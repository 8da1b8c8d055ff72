#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <psring/bench/predict/served_ends.h>
#include <psring/common/base/consistency.h>

namespace psring::bench {
namespace {

using net::FrameType;
using Action = WorkerAction::Kind;

constexpr std::uint32_t kFirstSteps = 3;  // until the queues are as they stay
constexpr std::uint32_t kMeasured = 4;
constexpr std::uint32_t kSteps = kFirstSteps + kMeasured + 1;  // without a next step, the last one would end earlier

class ServedJob {
 public:
  /// `seed`: orders the events of one moment. REQUIRES: all others outlive this.
  ServedJob(const TimedJob& job, const std::vector<WorkerAction>& step, const ServedPieces& pieces,
            const ServedPlaces& places, std::uint64_t seed)
      : job_(job),
        actions_(step),
        pieces_(pieces),
        places_(places),
        cards_(job, places_, seed),
        each_push_updates_(parse_consistency(job.job.consistency).each_push_updates),
        each_push_updates_rows_(parse_consistency(job.job.row_consistency()).each_push_updates),
        workers_(places_.workers, ServedWorker(job.work.layout.units.size() + job.work.rows.size())),
        servers_(places_.servers()),
        ends_(kSteps, 0) {
    const auto link = [&](net::Peer self) { links_.emplace_back(job, places_, pieces_, cards_, self); };
    for (std::uint32_t worker = 0; worker < workers_.size(); ++worker) link({net::Role::worker, worker});
    for (std::uint32_t server = 0; server < servers_.size(); ++server) link({net::Role::server, server});
    for (std::size_t worker = 0; worker < workers_.size(); ++worker) pushers_ += pushes(worker) ? 1 : 0;
    for (const WorkerAction& action : step)
      if (action.kind == Action::push) micros_ = std::max(micros_, action.micro + 1);
    for (std::size_t server = 0; server < servers_.size(); ++server) {
      servers_[server].pieces.resize(pieces_.of(places_.is_standalone(server)).size());
      for (HeldPiece& piece : servers_[server].pieces) piece.pushes.resize(micros_);
      for (const ServedPiece& piece : pieces_.of(places_.is_standalone(server)))
        incomplete_ += piece.trained && !piece.has_rows ? 1 : 0;
    }
  }

  TimedPeriod play() {
    // Calls are numbered: workers, then servers, then the update of a whole step, and the end of a transfer.
    const auto workers = static_cast<std::uint32_t>(workers_.size());
    const auto servers = static_cast<std::uint32_t>(servers_.size());
    // Workers never begin at the same moment. Equal beginnings would keep all workers in step for ever, so that no two
    // of them ever met at a card; the least difference ends that.
    constexpr double kPart = 1e-2;  // of the step, within which all begin
    double step_s = static_cast<double>(job_.work.layout.parameter_bytes()) * 8 / places_.between.bits_per_second;
    for (const WorkerAction& action : actions_) step_s += action.seconds;
    const double within_ns = 1e9 * (kPart * step_s);
    for (std::uint32_t worker = 0; worker < workers; ++worker)
      cards_.call(worker, std::floor(cards_.draw() * within_ns));
    while (!cards_.idle()) {
      const ServedCards::Event event = cards_.next();
      if (event.what == ServedCards::What::departs) {
        if (cards_.has_left(event.index)) refill(cards_.sender(event.index), event.at_ns);
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

 private:
  const ServedPiece& piece_of(std::size_t server, std::size_t piece) const {
    return pieces_.of(places_.is_standalone(server))[piece];
  }
  /// With --local-reduce one worker of a host pushes for all.
  bool pushes(std::size_t worker) const {
    const std::size_t host = job_.mesh.hosts > 1 ? places_.per_host : places_.workers;
    return !job_.job.local_reduce || worker % host == 0;
  }
  bool whole_step(const ServedPiece& piece) const {
    return !piece.has_rows && !each_push_updates_ && (job_.job.clip_norm > 0 || job_.job.optimizer == "lamb");
  }
  bool each_push_updates(const ServedPiece& piece) const {
    return piece.has_rows ? each_push_updates_rows_ : each_push_updates_;
  }
  void begin_count() {
    cards_.reset_busy();
    for (ServedServer& server : servers_) server.work_s = 0;
  }
  void end_count() {
    for (std::size_t station = 0; station < counted_.busy_s.size(); ++station)
      counted_.busy_s[station] = cards_.busy_s(static_cast<StepStation>(station));
    double& busiest = counted_.busy_s[static_cast<std::size_t>(StepStation::server)];
    for (const ServedServer& server : servers_) busiest = std::max(busiest, server.work_s);
  }

  /// Takes the worker's actions until one waits.
  void advance(std::uint32_t worker, double now) {
    ServedWorker& self = workers_[worker];
    if (!self.begun) {
      self.begun = true;
      for (std::size_t unit = 0; job_.kind.servers && !job_.kind.gathers && unit < job_.work.layout.units.size();
           ++unit)
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
        if (self.waits) return links_[worker].flush(now);
        if (action.kind == Action::transfer) send_transfer(worker, now);
        send_unit(worker, action, now);
      }
      self.next = 0;
      if (job_.kind.servers) links_[worker].flush(now);
      ends_[self.step] = std::max(ends_[self.step], now);
      if (worker == 0 && self.step + 1 == kFirstSteps) begin_count();
      if (worker == 0 && self.step + 1 == kFirstSteps + kMeasured) end_count();
      ++self.step;
    }
  }

  /// A frame has left: there may be room for more. A worker looks when it waits, a server when it does not work.
  void refill(std::size_t place, double now) {
    if (places_.is_worker(place) ? !workers_[place].waits || workers_[place].in_collective(actions_)
                                 : servers_[place - places_.workers].busy)
      return;
    links_[place].flush(now);
  }

  /// Sends the frames of a push or pull of a unit; the first ones go to another server for each worker. Those of a
  /// table go to one server after the other (worker::cut_rows).
  void send_unit(std::uint32_t worker, const WorkerAction& action, double now) {
    const bool push = action.kind == Action::push && pushes(worker);
    const bool pull = action.kind == Action::pull || action.pulls;
    if (!push && !pull) return;
    ServedWorker& self = workers_[worker];
    const std::size_t all = places_.servers();
    const std::size_t own = worker + places_.standalone;
    const std::size_t first = own < all ? own + 1 : worker % all;
    std::uint32_t count = 0;
    const bool of_table = action.unit >= job_.work.layout.units.size();
    const std::vector<ServedPieces::Turn>& turns = pieces_.turns(action.unit);
    for (std::size_t i = 0; i < turns.size() * all; ++i) {
      const std::size_t server = of_table ? i / turns.size() : (first + i) % all;
      const std::size_t number = turns[of_table ? i % turns.size() : i / all].piece(places_.is_standalone(server));
      if (number == ServedPieces::Turn::kNone) continue;
      const ServedPiece& piece = piece_of(server, number);
      const std::uint32_t version = self.step + (action.pulls || action.after_update ? 1 : 0);
      links_[worker].add({net::Role::server, static_cast<std::uint32_t>(server)},
                         {.type = !push  ? FrameType::pull
                                  : pull ? FrameType::push_pull
                                         : FrameType::push,
                          .micro = static_cast<std::uint32_t>(action.micro),
                          .begin = number,
                          .version = piece.trained ? version : 0});
      ++count;
    }
    links_[worker].flush(now);
    if (pull) self.values_missing[action.unit] += self.values_asked[action.unit] = count;
    if (push && !pull) self.pushes_missing[action.unit] = count;
  }

  /// Begins the worker's next action, a collective.
  void send_transfer(std::uint32_t worker, double now) {
    ServedWorker& self = workers_[worker];
    const auto workers = static_cast<std::uint32_t>(workers_.size());
    const auto to = static_cast<std::uint32_t>((worker + places_.per_host) % workers);
    const std::uint32_t number = self.transfers++;
    transfers_.resize(std::max<std::size_t>(transfers_.size(), number + 1));
    cards_.send({.header = {.type = FrameType::message, .sender_rank = worker, .step = number, .begin = self.next},
                 .to = {net::Role::worker, to},
                 .bytes = actions_[self.next].bytes,
                 .headers = 0},
                now);
  }

  void take(std::uint32_t index, double now) {
    const ServedFrame frame = cards_.frame(index);
    cards_.drop(index);
    if (frame.to.role == net::Role::server) {
      ServedServer& server = servers_[frame.to.rank];
      return server.busy ? server.inbox.push_back(frame.header) : serve(frame.to.rank, frame.header, now);
    }
    if (frame.header.type == FrameType::rows) return;
    if (frame.header.type == FrameType::message) {
      const auto ends = static_cast<std::uint32_t>(workers_.size() + servers_.size() + 1);
      if (++transfers_[frame.header.step] < workers_.size()) return;
      return cards_.call(ends, now + ServedCards::whole_ns(actions_[frame.header.begin].result_s));
    }
    ServedWorker& worker = workers_[frame.to.rank];
    --(frame.header.type == FrameType::values ? worker.values_missing : worker.pushes_missing)[frame.header.unit];
    wake(frame.to.rank, now);
  }

  void answer(std::uint32_t server, std::size_t piece, std::uint32_t worker, FrameType type) {
    servers_[server].answers.push_back({{net::Role::worker, worker}, type, piece});
  }

  void serve(std::uint32_t server, const net::FrameHeader& frame, double now) {
    HeldPiece& piece = servers_[server].pieces[frame.begin];
    const ServedPiece& about = piece_of(server, frame.begin);
    const bool pushes = frame.type != FrameType::pull;
    if (!pushes && about.in_parts)  // the rows that the present step does not train are known
      answer(server, frame.begin, frame.sender_rank, FrameType::rows);
    if (frame.type != FrameType::push) piece.waiting.push_back({frame.sender_rank, frame.version});
    const double work = pushes ? take_push(server, frame) : 0;
    answer_pulls(server, frame.begin);
    if (whole_step(about) && incomplete_ == 0 && pushes) {
      const MessageCosts& costs = job_.costs.exchange;
      const double verdict = 2 * ServedCards::whole_ns(seconds(places_.between.delay) + costs.hop_s);
      cards_.call(static_cast<std::uint32_t>(workers_.size() + servers_.size()),
                  now + ServedCards::whole_ns(work) + verdict);
    }
    begin_work(server, work, now);
  }

  /// Returns the time that the server works on the push.
  double take_push(std::uint32_t server, const net::FrameHeader& push) {
    HeldPiece& held = servers_[server].pieces[push.begin];
    const ServedPiece& piece = piece_of(server, push.begin);
    const bool acknowledges = push.type == FrameType::push;
    if (each_push_updates(piece)) {
      if (acknowledges) answer(server, push.begin, push.sender_rank, FrameType::push_ack);
      update(server, push.begin);
      return piece.update_s;
    }
    ++held.pushes[push.micro];
    if (acknowledges) held.unacknowledged.emplace_back(push.sender_rank, push.micro);
    double work = 0;
    while (held.micro < micros_ && held.pushes[held.micro] == pushers_) {
      work += piece.aggregate_s;
      std::erase_if(held.unacknowledged, [&](const auto& waiting) {
        if (waiting.second != held.micro) return false;
        answer(server, push.begin, waiting.first, FrameType::push_ack);
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
    update(server, push.begin);
    return work + piece.update_s;
  }

  void update(std::uint32_t server, std::size_t piece) {
    HeldPiece& held = servers_[server].pieces[piece];
    ++held.version;
    held.micro = 0;
    std::fill(held.pushes.begin(), held.pushes.end(), 0U);
  }

  void answer_pulls(std::uint32_t server, std::size_t piece) {
    HeldPiece& held = servers_[server].pieces[piece];
    const ServedPiece& about = piece_of(server, piece);
    std::erase_if(held.waiting, [&](const auto& pull) {
      if (!each_push_updates(about) && pull.second > held.version) return false;
      answer(server, piece, pull.first, FrameType::values);
      return true;
    });
  }

  /// The answers to a frame leave when the work on the frame is done.
  void begin_work(std::uint32_t server, double seconds, double now) {
    if (!(seconds > 0)) return send_answers(server, now);
    ServedServer& self = servers_[server];
    self.busy = true;
    self.work_s += seconds;
    const double work = ServedCards::whole_ns(seconds);
    const double end = std::max(now + work, cards_.work(workers_.size() + server, now, work));
    cards_.call(static_cast<std::uint32_t>(workers_.size() + server), end);
  }

  void send_answers(std::uint32_t server, double now) {
    ServedTransport& link = links_[workers_.size() + server];
    for (const ServedServer::Answer& answer : servers_[server].answers)
      link.add(answer.to, {.type = answer.type, .begin = answer.piece});
    servers_[server].answers.clear();
    link.flush(now);
  }

  void end_work(std::uint32_t server, double now) {
    ServedServer& self = servers_[server];
    send_answers(server, now);
    self.busy = false;
    while (!self.busy && !self.inbox.empty()) {
      const net::FrameHeader frame = self.inbox.front();
      self.inbox.pop_front();
      serve(server, frame, now);
    }
  }

  /// The servers know that the step's gradients are whole, and their norm.
  void update_all(double now) {
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

  void wake(std::uint32_t worker, double now) {
    ServedWorker& self = workers_[worker];
    if (!self.waits || !self.has(actions_[self.next], transfers_done_)) return;
    self.waits = false;
    advance(worker, now);
  }

  const TimedJob& job_;
  const std::vector<WorkerAction>& actions_;
  const ServedPieces& pieces_;
  const ServedPlaces& places_;
  ServedCards cards_;
  std::vector<std::size_t> transfers_;  ///< by number: workers that have their frame
  std::uint32_t transfers_done_ = 0;
  std::vector<ServedTransport> links_;  ///< by place
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

}  // namespace

/// The order of frames that are ready at the same moment is drawn; several orders are played if that takes no time.
TimedPeriod served_period(const TimedJob& job, const ComputePace& pace) {
  const std::vector<WorkerAction> step = worker_actions(job, pace);  // of each worker
  const ServedPieces pieces(job);
  const ServedPlaces places(job, pieces.waves());
  constexpr double kFewFrames = 3'000;  // in a step
  constexpr double kMostRuns = 20;
  const double frames = static_cast<double>(places.workers * places.servers()) * pieces.waves();
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
