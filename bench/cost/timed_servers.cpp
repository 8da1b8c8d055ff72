#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <psring/bench/cost/coded_gradients.h>
#include <psring/bench/cost/timed_exchange.h>
#include <psring/worker/exchange/unit_order.h>

namespace psring::bench {

using worker::Pass;

namespace {

constexpr double kMostWaves = 2000;  // of a step; larger pieces than the real ones change the time of the last piece

/// The way of bytes between workers and servers of one kind, standalone or colocated, which all have the same share. A
/// wave is a piece of each server. Hosts with one worker, or one host with several, are workers with a card each; else
/// the workers of a host share its card.
class Way {
 public:
  /// `first`: the rank of the first of the servers.
  Way(const TimedJob& job, std::size_t first, std::size_t servers, bool colocated)
      : job_(job),
        per_card_(job.mesh.hosts > 1 ? job.mesh.workers_per_host : 1),
        cards_(job.mesh.workers() / per_card_),
        link_(job.mesh.hosts > 1 ? job.mesh.between : job.mesh.within),
        first_(first),
        servers_(servers),
        colocated_(colocated && cards_ > 1) {}

  /// Elements of a unit that each of the servers has.
  double share(std::size_t unit) const { return static_cast<double>(job_.work.layout.owned(unit, first_)); }
  /// From the moment at which a frame could leave until it can be used, without the time on the cards.
  double latency_s(double bytes) const { return wire().latency_s(bytes); }

  /// A wave's way to the servers, and the work of the servers on it. `bytes`: of a piece as it is pushed; `frames`:
  /// that carry it; `more_bytes`: what a server's card carries of other waves before the last piece of this one, less
  /// what it has carried of this one before; `lead_s`: time by which the first worker pushes before the last.
  std::vector<Leg> push(double bytes, double frames, double more_bytes, double lead_s, double server_work_s) const {
    const double frame = bytes + kHeaderBytes;
    const double local = local_share();
    const double sends = static_cast<double>(pushers_per_card()) * static_cast<double>(servers_) * (1 - local);
    const double takes = static_cast<double>(pushers()) * (1 - local) * servers_per_card();
    std::vector<Leg> legs;
    legs.push_back({.station = job_.station(StepStation::card_out), .service_s = sends * frame / rate()});
    legs.push_back({.station = job_.station(server_in()),
                    .service_s = std::max(0.0, takes * frame + more_bytes) / rate(),
                    .streams = true,
                    .after_s = latency_s(bytes) - lead_s,
                    .tail_s = latency_s(bytes)});
    const auto all = static_cast<double>(pushers()) * static_cast<double>(servers_);
    add_processors(legs, all * frames, all * bytes, server_work_s * static_cast<double>(servers_));
    // The station is the processor of the busiest server; those of smaller shares work beside it.
    const bool busiest = first_ == 0;
    legs.push_back({.station = job_.station(StepStation::server),
                    .service_s = busiest ? server_work_s : 0,
                    .alone_s = server_work_s});
    return legs;
  }
  /// A worker's requests for a wave, which wait behind what its card and the servers' cards have to carry.
  std::vector<Leg> request() const {
    const double local = local_share();
    const double sends = static_cast<double>(per_card_) * static_cast<double>(servers_) * (1 - local);
    const double takes = static_cast<double>(job_.mesh.workers()) * (1 - local) * servers_per_card();
    return {{.station = job_.station(StepStation::card_out), .service_s = sends * kHeaderBytes / rate()},
            {.station = job_.station(server_in()),
             .service_s = takes * kHeaderBytes / rate(),
             .streams = true,
             .after_s = latency_s(0),
             .tail_s = latency_s(0)}};
  }
  /// A wave's way back, from the moment at which the servers have it. `bytes`: of a piece as it is answered.
  std::vector<Leg> answer(double bytes, double frames) const {
    const double frame = bytes + kHeaderBytes;
    const double local = local_share();
    const double sends = static_cast<double>(job_.mesh.workers()) * (1 - local) * servers_per_card();
    const double takes = static_cast<double>(per_card_) * static_cast<double>(servers_) * (1 - local);
    std::vector<Leg> legs;
    legs.push_back({.station = job_.station(server_out()), .service_s = sends * frame / rate()});
    legs.push_back({.station = job_.station(StepStation::card_in),
                    .service_s = takes * frame / rate(),
                    .streams = true,
                    .after_s = latency_s(bytes),
                    .tail_s = latency_s(bytes)});
    const double all = static_cast<double>(job_.mesh.workers()) * static_cast<double>(servers_);
    add_processors(legs, all * frames, all * bytes, 0);
    return legs;
  }
  /// The time for which a server's card carries `bytes` to or from each worker.
  double serving_s(double bytes) const { return static_cast<double>(job_.mesh.workers()) * bytes / rate(); }
  std::size_t pushers() const { return cards_ * pushers_per_card(); }
  /// Servers answer one worker after the other, so that the first goes on before the last, by this time. `bytes`: of
  /// the piece that workers wait for.
  double lead_s(double bytes) const {
    const double workers = static_cast<double>(cards_) - static_cast<double>(servers_);
    return std::max(0.0, workers) * (bytes + kHeaderBytes) / rate();
  }
  /// Time for which a worker's card is busy with its pieces of a wave.
  double sends_s(double bytes) const { return static_cast<double>(servers_) * (bytes + kHeaderBytes) / rate(); }

 private:
  Wire wire() const { return {link_, job_.costs.exchange.hop_s, job_.costs.exchange.hop_s_per_byte}; }
  double rate() const { return link_.bits_per_second / 8; }
  /// The processors' work on a wave's messages, all processes together, and the servers' own work.
  void add_processors(std::vector<Leg>& legs, double messages, double bytes, double work_s) const {
    if (job_.costs.processors <= 0) return;
    const MessageCosts& costs = job_.costs.exchange;
    const double every = messages * costs.work_s + bytes * costs.work_s_per_byte + work_s;
    const double hosts = static_cast<double>(colocated_ ? cards_ : std::min(cards_, servers_));
    legs.push_back(job_.processors(every, every / hosts));
  }
  std::size_t pushers_per_card() const { return job_.job.local_reduce ? 1 : per_card_; }
  /// Servers whose bytes pass one card: those of a worker's host if colocated, else one.
  double servers_per_card() const {
    return colocated_ ? std::ceil(static_cast<double>(servers_) / static_cast<double>(cards_)) : 1;
  }
  /// The share of a worker's bytes that stays on its host: on the busiest card, which is one with servers.
  double local_share() const { return colocated_ ? servers_per_card() / static_cast<double>(servers_) : 0; }
  StepStation server_in() const { return colocated_ ? StepStation::card_in : StepStation::server_card_in; }
  StepStation server_out() const { return colocated_ ? StepStation::card_out : StepStation::server_card_out; }
  const TimedJob& job_;
  const std::size_t per_card_;
  const std::size_t cards_;
  const net::LinkSpec link_;
  const std::size_t first_;
  const std::size_t servers_;
  const bool colocated_;
};

/// The pushes of a step, in which the first of n workers is ahead of the last. It pushes later waves before the last
/// worker pushes the first one, and the servers' cards carry frames as they come: a wave is complete only after the
/// later waves' frames that are ahead of its last frame.
class Lead {
 public:
  /// A wave as one worker pushes it: when its card has carried it, in a step without other workers.
  struct Wave {
    const Way* way = nullptr;
    double bytes = 0;
    double end_s = 0;
  };
  /// `lead_s`: of the first worker before the last; the others are between them at equal distances.
  Lead(std::size_t workers, double lead_s, const std::vector<Wave>& waves) : lead_s_(lead_s) {
    const double others = static_cast<double>(workers) - 1;
    std::map<const Way*, double> before;
    for (std::size_t k = 0; k < waves.size(); ++k) {
      double ahead = 0;
      for (std::size_t j = k + 1; j < waves.size() && lead_s > 0; ++j) {
        const double behind = (waves[j].end_s - waves[k].end_s) / lead_s;  // of the lead that a worker needs
        if (behind > 1) break;
        if (waves[j].way != waves[k].way) continue;  // other servers' cards carry it
        ahead += waves[j].bytes * (others - std::ceil(behind * others - kTiny) + 1);
      }
      more_bytes_.push_back(ahead - std::exchange(before[waves[k].way], ahead));
    }
  }

  double lead_s() const { return lead_s_; }
  void begin_step() { wave_ = 0; }
  /// Returns the bytes of other waves that are carried before the next wave is complete, less those of this wave that
  /// were carried before.
  double next() { return wave_ < more_bytes_.size() ? more_bytes_[wave_++] : 0; }

 private:
  static constexpr double kTiny = 1e-9;

  const double lead_s_;
  std::vector<double> more_bytes_;  ///< by wave
  std::size_t wave_ = 0;
};

/// Standalone servers come first, as their ranks do.
std::vector<Way> ways_of(const TimedJob& job) {
  std::vector<Way> ways;
  const std::size_t standalone = job.job.standalone_servers();
  if (standalone > 0) ways.emplace_back(job, 0, standalone, false);
  if (standalone < job.job.servers) ways.emplace_back(job, standalone, job.job.servers - standalone, true);
  return ways;
}

/// Workers that push gradients and pull parameters, all stages.
class Servers final : public TimedExchange {
 public:
  explicit Servers(const TimedJob& job)
      : job_(job),
        ways_(ways_of(job_)),
        coded_(job.job, job.work.layout),
        answered_(layout().units.size()),
        pushed_(layout().units.size()),
        order_{begins(worker::forward_events(job.work.unit_layers)),
               begins(worker::backward_events(job.work.backward_layers))} {
    double waves = 0;
    for (std::size_t unit = 0; unit < layout().units.size(); ++unit)
      for (const Way& way : ways_) waves += std::ceil(way.share(unit) / static_cast<double>(layout().piece_elements));
    coarse_ = std::max(1.0, waves / kMostWaves);
    lead_.emplace(make_lead());
  }

  void begin_step() override {
    lead_->begin_step();
    if (fetches())
      for (auto& tickets : answered_) tickets.clear();
  }
  double acquire(std::size_t unit, Pass pass, double now) override {
    if (fetches()) {
      for (const std::size_t next : wanted(unit, pass))
        if (answered_[next].empty()) pull(next, now);
    } else if (pass == Pass::backward) {
      return now;
    }
    const double here = wait(answered_[unit], now);
    if (job_.job.optimizer_on == "server" || pass == Pass::backward || here == now) return here;
    return here + job_.update_s(static_cast<double>(layout().trained_elements(unit)));
  }
  void release(std::size_t unit, Pass pass) override {
    const bool drops =
        pass == Pass::backward || job_.job.reshard_after_forward || job_.work.backward_layers[unit].empty();
    if (fetches() && drops) answered_[unit].clear();
  }
  double open(std::size_t unit, double now) override {
    if (!job_.kind.at_owner) return now;
    while (window_.size() > 1 || std::find(window_.begin(), window_.end(), unit) != window_.end()) {
      now = std::max(now, wait(pushed_[window_.front()], now) + latency_s());
      window_.pop_front();
    }
    return now;
  }
  void ready(std::size_t unit, bool last_micro, double now) override {
    if (!layout().units[unit].trained || (!job_.kind.at_owner && !last_micro)) return;
    push(unit, now, last_micro);
    if (job_.kind.at_owner) window_.push_back(unit);
    if (!fetches() && last_micro && !whole_step()) pull(unit, now);
  }
  double finish(double now) override {
    for (; !window_.empty(); window_.pop_front())
      now = std::max(now, wait(pushed_[window_.front()], now) + latency_s());
    if (!whole_step() || fetches()) return now;
    double known = now;  // norms, or sums: updates begin when all gradients are there
    for (const std::size_t unit : layout().trained()) known = wait(pushed_[unit], known);
    for (const std::size_t unit : layout().trained()) pull(unit, known + 2 * latency_s());
    return now;
  }

 private:
  using Tickets = std::vector<Stations::Ticket>;

  static std::vector<std::size_t> begins(const std::vector<worker::UnitEvent>& events) {
    std::vector<std::size_t> units;
    for (const auto& [unit, begins] : events)
      if (begins) units.push_back(unit);
    return units;
  }
  const Layout& layout() const { return job_.work.layout; }
  bool fetches() const { return job_.kind.gathers; }
  bool whole_step() const { return job_.job.clip_norm > 0 || job_.job.optimizer == "lamb"; }
  double latency_s() const { return ways_.front().latency_s(0); }
  double wait(const Tickets& tickets, double now) {
    for (const Stations::Ticket ticket : tickets) now = std::max(now, job_.stations.end_of(ticket));
    return now;
  }
  /// The first worker's lead comes from the last piece of the unit that forward needs first. With mixed servers pushes
  /// are paced: a worker that also fetches each unit then has no lead.
  Lead make_lead() const {
    const Way& way = ways_.front();
    const auto element = static_cast<double>(size_bytes(layout().gradient_type));
    double last = 0;
    if (!order_[0].empty())
      for (const Wave& wave : waves_of(order_[0].front())) last = wave.elements * element;
    std::vector<Lead::Wave> waves;
    double ready = 0;  // when backward has the unit's gradient
    double free = 0;   // when the card has carried the waves before
    for (std::size_t layer = job_.work.layers.size(); layer-- > job_.work.first_trained_layer;) {
      ready += job_.work.layers[layer].backward_s;
      const std::size_t unit = job_.work.layers[layer].unit;
      if (unit == worker::kNoUnit || !layout().units[unit].trained || job_.work.unit_layers[unit].begin != layer)
        continue;
      for (const Wave& wave : waves_of(unit)) {
        const double bytes = pushed_bytes(wave);
        free = std::max(free, ready) + wave.way.sends_s(bytes);
        waves.push_back({&wave.way, bytes, free});
      }
    }
    return {way.pushers(), ways_.size() > 1 && fetches() ? 0 : way.lead_s(last), waves};
  }
  double frames(double elements) const { return std::ceil(elements / static_cast<double>(layout().piece_elements)); }
  struct Wave {
    const Way& way;
    double elements = 0;
  };
  /// The bytes of a wave's gradients on the wire, for each server.
  double pushed_bytes(const Wave& wave) const {
    if (coded_.has_codec()) return coded_.bytes(wave.elements);
    return wave.elements * static_cast<double>(size_bytes(layout().gradient_type));
  }
  /// The waves of a unit, in the order in which pieces leave (ClientProtocol): by their position in the servers'
  /// shares.
  std::vector<Wave> waves_of(std::size_t unit) const {
    const double piece = static_cast<double>(layout().piece_elements) * coarse_;
    std::vector<Wave> waves;
    std::vector<double> done(ways_.size(), 0);
    for (;;) {
      std::size_t next = 0;
      for (std::size_t i = 1; i < ways_.size(); ++i)
        if (done[i] / ways_[i].share(unit) < done[next] / ways_[next].share(unit)) next = i;
      const double left = ways_[next].share(unit) - done[next];
      if (!(left > 0)) return waves;
      waves.push_back({ways_[next], std::min(left, piece)});
      done[next] = left > piece ? done[next] + piece : ways_[next].share(unit);
    }
  }
  /// The time for which the card of the largest server is busy with a unit, in the busier direction.
  double busy_s(std::size_t unit) const {
    const std::size_t element = std::max(size_bytes(layout().gradient_type), size_bytes(layout().parameter_type));
    return ways_.front().serving_s(ways_.front().share(unit) * static_cast<double>(element));
  }
  void push(std::size_t unit, double now, bool updates) {
    pushed_[unit].clear();
    const auto element = static_cast<double>(size_bytes(layout().gradient_type));
    const std::vector<Wave> waves = waves_of(unit);
    // Mixed servers: pushes share the worker's card with answers by the weights of their peers (PsClient), so that they
    // leave over the whole time for which the cards are busy.
    const double begin = std::max(now, paced_until_);
    const double pace = ways_.size() > 1 ? busy_s(unit) / static_cast<double>(waves.size()) : 0;
    if (pace > 0) paced_until_ = begin + busy_s(unit);
    std::size_t place = 0;
    for (const Wave& wave : waves) {
      const double bytes = pushed_bytes(wave);
      double work = wave.elements * element * static_cast<double>(wave.way.pushers()) * job_.costs.aggregate_s_per_byte;
      if (updates && job_.job.optimizer_on == "server")
        work += wave.elements * update_bytes_per_element(job_.job, layout().parameter_type, layout().gradient_type) *
                job_.costs.update_s_per_byte;
      const double ready = pace > 0 ? begin + pace * static_cast<double>(place++) : now;
      pushed_[unit].push_back(job_.stations.submit(
          ready, wave.way.push(bytes, frames(wave.elements), lead_->next(), lead_->lead_s(), work)));
    }
  }
  /// Asks for the values after the last push.
  void pull(std::size_t unit, double now) {
    answered_[unit].clear();
    const auto element = static_cast<double>(
        size_bytes(job_.job.optimizer_on == "server" ? layout().parameter_type : layout().gradient_type));
    std::size_t place = 0;
    for (const Wave& wave : waves_of(unit)) {
      std::vector<Leg> legs = fetches() ? wave.way.request() : std::vector<Leg>();
      const std::vector<Leg> answer = wave.way.answer(wave.elements * element, frames(wave.elements));
      legs.insert(legs.end(), answer.begin(), answer.end());
      const auto after = place < pushed_[unit].size() ? pushed_[unit][place] : Stations::kNone;
      answered_[unit].push_back(job_.stations.submit(now, std::move(legs), after));
      ++place;
    }
  }
  std::vector<std::size_t> wanted(std::size_t unit, Pass pass) const {
    const std::vector<std::size_t>& order = order_[pass == Pass::forward ? 0 : 1];
    const auto at = std::find(order.begin(), order.end(), unit);
    const auto left = static_cast<std::size_t>(order.end() - at);
    return {at, at + static_cast<std::ptrdiff_t>(std::min(job_.job.prefetch + 1, left))};
  }

  const TimedJob job_;
  const std::vector<Way> ways_;
  const CodedGradients coded_;
  std::vector<Tickets> answered_;  ///< by unit: the pulls of its newest values
  std::vector<Tickets> pushed_;    ///< by unit: its newest pushes
  const std::vector<std::size_t> order_[2];
  double paced_until_ = 0;          ///< mixed servers: when the pushes so far have left
  std::deque<std::size_t> window_;  ///< units whose gradients are in flight
  std::optional<Lead> lead_;
  double coarse_ = 1;  ///< pieces are as many times as large as the real ones
};

}  // namespace

std::unique_ptr<TimedExchange> make_timed_servers(const TimedJob& job) { return std::make_unique<Servers>(job); }

}  // namespace psring::bench
