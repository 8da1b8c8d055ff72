#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>

#include <psring/optim/loss_scaler.h>
#include <psring/tests/support/cut_job.h>
#include <psring/tests/support/values.h>

namespace psring::test {

using net::FrameHeader;
using net::FrameType;
using net::Message;
using net::Outgoing;
using net::Peer;
using net::Role;

namespace {

constexpr std::size_t kWidth = 2;  ///< of rows
constexpr std::size_t kKeys = 12;

Layout layout_of(const CutRules& rules) {
  Layout layout = small_layout(rules.shards.servers);
  layout.pushes = rules.micros;
  if (rules.tables)
    layout.tables = {{.name = "rows",
                      .width = kWidth,
                      .init = {Init::Kind::uniform, 0.5F},
                      .most_keys = kKeys,
                      .most_bags = kKeys,
                      .pieces = 2,
                      .lookahead = rules.lookahead ? 1U : 0U}};
  return layout;
}

/// Cached, because a test runs the same steps many times.
const std::vector<float>& noise(std::size_t size, std::uint64_t seed) {
  static std::map<std::pair<std::size_t, std::uint64_t>, std::vector<float>> made;
  auto& values = made[{size, seed}];
  if (values.empty()) values = normal_values(size, seed);
  return values;
}

constexpr float kLargest = 50'000;  // with a larger loss scale, gradients are not finite

}  // namespace

/// A worker: waits for all parameters, computes a gradient from them, pushes it.
class CutJob::Worker : public std::enable_shared_from_this<Worker> {
 public:
  Worker(const CutRules& rules, const Layout& layout, std::uint32_t rank)
      : rules_(rules),
        rank_(rank),
        client_(layout, nullptr, rank),
        tables_(layout, nullptr),
        scaler_(optim::LossScaler::parse(rules.shards.loss_scale, false)) {
    for (const UnitLayout& unit : layout.units) {
      parameters_.emplace_back(unit.elements, std::numeric_limits<float>::quiet_NaN());
      gradients_.emplace_back(rules.micros, std::vector<float>(unit.elements));
    }
  }

  void open(std::vector<Outgoing>& out) { client_.open(3, false, out); }

  void take(const Message& message, std::vector<Outgoing>& out) {
    worker::TableProtocol::takes(message.header.type) ? tables_.on_message(message) : client_.on_message(message);
    if (!opened_ && client_.opened()) begin(out);
    while (opened_ && !done() && has_all()) make_step(out);
  }

  bool done() const { return opened_ && step_ == rules_.steps && has_all(); }
  std::uint64_t first_step() const { return first_step_; }
  const std::vector<std::vector<float>>& parameters() const { return parameters_; }
  /// All rows, after the last step.
  const std::vector<float>& rows() const { return rows_[step_ % kTurns]; }
  /// The memory for the answer to a request.
  std::span<std::byte> space(const FrameHeader& asked) {
    return Elements(parameters_[asked.unit]).part(asked.range()).bytes();
  }
  /// The worker is lost: overwrites its memory, so that late reads and writes are seen.
  void die() {
    for (auto& of_unit : gradients_)
      for (auto& of_micro : of_unit) std::ranges::fill(of_micro, std::numeric_limits<float>::quiet_NaN());
    for (auto& of_step : row_gradients_) std::ranges::fill(of_step, std::numeric_limits<float>::quiet_NaN());
    for (auto& of_unit : parameters_) std::ranges::fill(of_unit, kDead);
  }
  bool was_written() const {
    return std::ranges::any_of(parameters_, [](const auto& of_unit) {
      return std::ranges::any_of(of_unit, [](float v) { return v != kDead; });
    });
  }

 private:
  static constexpr float kDead = -77;
  static constexpr std::size_t kTurns = 3;

  void begin(std::vector<Outgoing>& out) {
    opened_ = true;
    step_ = first_step_ = client_.version();
    if (scaler_.active()) scaler_.load(client_.loss_scale().first<optim::LossScaler::kBytes>());
    for (std::size_t unit = 0; unit < parameters_.size(); ++unit)
      client_.pull(unit, step_, Elements(parameters_[unit]), true, out);
    pull_rows(step_, worker::RowUse::train, out);
  }

  /// Asks for the rows of two thirds of all keys, and after the last step for all.
  void pull_rows(std::uint64_t step, worker::RowUse use, std::vector<Outgoing>& out) {
    if (!rules_.tables) return;
    std::vector<std::uint64_t>& keys = keys_[step % kTurns];
    keys.clear();
    for (std::uint64_t i = 0; i < kKeys; ++i)
      if (step == rules_.steps || (i + step + rank_) % 3 > 0) keys.push_back((i << 60) + i + 1);
    rows_[step % kTurns].assign(keys.size() * kWidth, std::numeric_limits<float>::quiet_NaN());
    tables_.pull(0, {.keys = keys}, step, Elements(rows_[step % kTurns]), use, out);
  }

  void push_rows(std::vector<Outgoing>& out) {
    if (!rules_.tables) return;
    const std::vector<float>& rows = rows_[step_ % kTurns];
    std::vector<float>& gradients = row_gradients_[step_ % kTurns];
    gradients = noise(rows.size(), 77 + step_ * 8 + rank_);
    for (std::size_t i = 0; i < rows.size(); ++i) gradients[i] += 0.3F * rows[i] + 0.2F * parameters_[0][i];
    tables_.push(0, step_, ConstElements(std::span<const float>(gradients)), net::Encoding::dense, out);
  }

  bool has_all() const {
    for (std::size_t unit = 0; unit < parameters_.size(); ++unit)
      if (!client_.has(unit, step_) || !client_.acknowledged(unit)) return false;
    return !rules_.tables || (tables_.arrived(0, step_, worker::RowUse::train) && tables_.acknowledged(0));
  }

  void make_step(std::vector<Outgoing>& out) {
    if (scaler_.active() && made_) scaler_.finished(!client_.skipped(step_));
    made_ = true;
    for (std::size_t unit = parameters_.size(); unit-- > 0;)
      for (std::size_t micro = 0; micro < rules_.micros; ++micro) make_gradient(unit, micro);
    if (rules_.lookahead) pull_rows(step_ + 1, worker::RowUse::ahead, out);
    push_rows(out);
    for (std::size_t unit = parameters_.size(); unit-- > 0;) {
      if (rules_.push_pull) {
        client_.push_pull(unit, step_, gradients_[unit][0], Elements(parameters_[unit]), out);
        continue;
      }
      for (std::size_t micro = 0; micro < rules_.micros; ++micro)
        client_.push(unit, step_, micro, gradients_[unit][micro], out);
      client_.pull(unit, step_ + 1, Elements(parameters_[unit]), false, out);
    }
    ++step_;
    if (!rules_.lookahead) pull_rows(step_, worker::RowUse::train, out);
  }

  void make_gradient(std::size_t unit, std::size_t micro) {
    const std::vector<float>& at = parameters_[unit];
    const std::vector<float>& other = parameters_[(unit + 1) % parameters_.size()];
    std::vector<float>& gradient = gradients_[unit][micro];
    const float of_rows = rules_.tables ? rows_[step_ % kTurns][unit] : 0;
    const std::vector<float>& part = noise(at.size(), ((step_ * 8 + rank_) * 8 + micro) * 8 + unit);
    for (std::size_t i = 0; i < at.size(); ++i)
      gradient[i] =
          (part[i] + static_cast<float>(rank_ + 1) * (0.3F * at[i] + 0.2F * other[i % other.size()] + 0.1F * of_rows)) *
          scaler_.scale();
    if (scaler_.scale() > kLargest) gradient[step_] = std::numeric_limits<float>::infinity();
  }

  const CutRules& rules_;
  const std::uint32_t rank_;
  worker::ClientProtocol client_;
  worker::TableProtocol tables_;
  optim::LossScaler scaler_;
  std::vector<std::vector<float>> parameters_;              ///< by unit
  std::vector<std::vector<std::vector<float>>> gradients_;  ///< by unit and micro-batch
  // By turns: servers read the gradients of a step until its rows in the next version have come.
  std::vector<std::uint64_t> keys_[kTurns];
  std::vector<float> rows_[kTurns];
  std::vector<float> row_gradients_[kTurns];
  std::uint64_t step_ = 0;
  std::uint64_t first_step_ = 0;
  bool opened_ = false;
  bool made_ = false;  ///< a step
};

CutJob::CutJob(const CutRules& rules)
    : rules_(rules),
      layout_(layout_of(rules)),
      cluster_(rules.shards),
      left_(static_cast<std::uint32_t>(rules.shards.workers)),
      order_(rules.seed) {
  for (std::size_t rank = 0; rank < rules.shards.servers; ++rank) {
    shards_.push_back(cluster_.make_shard(rank));
    if (rules.replicas) follower_shards_.push_back(cluster_.make_shard(rank));
  }
  cut();
}

CutJob::~CutJob() = default;

void CutJob::lose(Peer lost) {
  const std::size_t rank = lost.rank % shards_.size();
  if (lost.rank < shards_.size()) shards_[rank] = std::move(follower_shards_[rank]);
  follower_shards_[rank] = cluster_.make_shard(rank);
}

void CutJob::begin_epoch_of_servers() {
  for (const auto& shard : shards_) shard->begin_epoch(left_);
  for (const auto& shard : follower_shards_) shard->begin_epoch(left_);
  replications_.clear();
  followers_.clear();
  for (std::uint32_t rank = 0; rules_.replicas && rank < shards_.size(); ++rank) {
    const Peer follower{Role::server, static_cast<std::uint32_t>(shards_.size()) + rank};
    replications_.push_back(std::make_unique<server::Replication>(*shards_[rank], follower));
    followers_.push_back(std::make_unique<server::Follower>(*follower_shards_[rank], Peer{Role::server, rank}));
    std::vector<Outgoing> frames;
    followers_[rank]->begin(frames);
    send(follower, frames);
  }
}

void CutJob::cut(std::optional<Peer> lost) {
  const auto before = std::exchange(workers_, {});
  links_.clear();
  eagerly_.clear();
  if (lost && lost->role == Role::worker)
    --left_;
  else if (lost)
    lose(*lost);
  begin_epoch_of_servers();
  for (const auto& worker : before) worker->die();
  dead_.insert(dead_.end(), before.begin(), before.end());
  for (std::uint32_t rank = 0; rank < left_; ++rank) {
    workers_.push_back(std::make_shared<Worker>(rules_, layout_, rank));
    std::vector<Outgoing> frames;
    workers_.back()->open(frames);
    send({Role::worker, rank}, frames);
  }
}

void CutJob::begin_with(CutJob& other) {
  for (std::uint32_t rank = 0; rank < shards_.size(); ++rank) {
    const Peer primary{Role::server, rank};
    server::Follower follower(*shards_[rank], primary);
    std::vector<Outgoing> frames;
    std::vector<Outgoing> acknowledged;
    other.shard(rank).snapshot(primary, frames);
    for (const Outgoing& frame : frames) {
      Message message{frame.header, frame.payload, {}, frame.holder};
      message.header.sender_role = primary.role;
      message.header.sender_rank = primary.rank;
      follower.on_message(std::move(message), acknowledged);
    }
  }
  cut();
}

void CutJob::send(Peer from, std::vector<Outgoing>& frames) {
  for (const Outgoing& frame : frames) {
    Message message{frame.header, frame.payload, {}, frame.holder};
    message.header.sender_role = from.role;
    message.header.sender_rank = from.rank;
    if (from.role == Role::worker) {
      const auto& worker = workers_[from.rank];
      const FrameType type = frame.header.type;
      if (type == FrameType::pull || type == FrameType::push_pull) message.reply_space = worker->space(frame.header);
      message.holder = message.reply_holder = worker;
    }
    if (rules_.eager && frame.header.type == FrameType::replicated && frame.header.version > 0) continue;
    links_[{from, frame.to}].push_back(std::move(message));
    if (rules_.eager && frame.to.role == Role::server && frame.to.rank >= shards_.size()) {
      Message taken{};
      taken.header.type = FrameType::replicated;
      taken.header.sender_role = Role::server;
      taken.header.sender_rank = frame.to.rank;
      taken.header.version = ++eagerly_[frame.to];
      links_[{frame.to, from}].push_back(std::move(taken));
    }
  }
  frames.clear();
}

std::size_t CutJob::run(std::size_t frames) {
  for (std::size_t handled = 0; handled < frames; ++handled) {
    if (links_.empty()) return handled;
    const auto link = std::next(links_.begin(), static_cast<std::ptrdiff_t>(order_() % links_.size()));
    const Peer to = link->first.second;
    Message message = std::move(link->second.front());
    link->second.pop_front();
    if (link->second.empty()) links_.erase(link);
    deliver(to, std::move(message));
  }
  return frames;
}

void CutJob::deliver(Peer to, Message message) {
  std::vector<Outgoing> out;
  if (to.role == Role::worker)
    workers_[to.rank]->take(message, out);
  else if (to.rank >= shards_.size())
    followers_[to.rank - shards_.size()]->on_message(std::move(message), out);
  else if (rules_.replicas)
    replications_[to.rank]->on_message(std::move(message), out);
  else
    shard(to.rank).on_message(std::move(message), out);
  send(to, out);
}

bool CutJob::done() const {
  return std::ranges::all_of(workers_, [](const auto& worker) { return worker->done(); });
}

bool CutJob::knows_the_dead() const {
  return std::ranges::any_of(dead_, [](const auto& worker) { return worker.use_count() > 1 || worker->was_written(); });
}

std::uint64_t CutJob::first_step_of(std::size_t worker) const { return workers_.at(worker)->first_step(); }

std::vector<float> CutJob::parameters() const {
  if (!done()) throw std::logic_error("the job is not done");
  std::vector<float> all;
  for (const auto& worker : workers_) {
    std::vector<float> mine;
    for (const auto& of_unit : worker->parameters()) mine.insert(mine.end(), of_unit.begin(), of_unit.end());
    mine.insert(mine.end(), worker->rows().begin(), worker->rows().end());
    if (!all.empty() && mine != all) throw std::logic_error("workers have different parameters");
    all = std::move(mine);
  }
  return all;
}

}  // namespace psring::test
