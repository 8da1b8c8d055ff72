#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/job.h>
#include <psring/optim/rows/old_rows.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/exchange/planned.h>
#include <psring/worker/exchange/tables/local_tables.h>
#include <psring/worker/exchange/tables/row_cache.h>
#include <psring/worker/exchange/tables/table_batch.h>
#include <psring/worker/servers/server_bytes.h>
#include <psring/worker/tables/row_client.h>

namespace psring::worker {
namespace {

/// All workers see each version of the rows.
bool is_exact(const Plan& plan) { return plan.job.row_consistency() == "bsp"; }

std::size_t cached_rows(const Plan& plan, const TableLayout& table) {
  return RowCache::rows_in(table, plan.job.table_cache, RowCache::steps_of(plan.job));
}

TableBatch::Parts parts_of(const Plan& plan, const TableLayout& table) {
  if (cached_rows(plan, table) > 0) return TableBatch::Parts::cached;
  return is_exact(plan) && table.lookahead > 0 ? TableBatch::Parts::ahead : TableBatch::Parts::none;
}

/// Tables at servers. A batch's rows are pulled by their keys; their gradients are pushed in the same order.
class ServedTables final : public Tables {
 public:
  ServedTables(const Plan& plan, const World& world, bool opens);

  void start() override;

  void fetch(std::span<const KeyBatch> keys, Step step, std::size_t virtual_worker, RowUse use) override;
  void fetch_ahead(std::span<const KeyBatch> keys, Step step) override;
  bool begin(Step step) override;
  TableView view(TableId table, Range bags) override { return batch(table).view(bags); }
  void acquire(TableId table) override;
  void grad_ready(TableId table) override;
  void finish(Step /*step*/) override {}
  void begin_updates() override {
    if (plan_.job.recovery == "both" && optim::keeps_old_rows(plan_.job)) quiesce();
  }
  void quiesce() override;
  void leave() override;
  double staleness() override { return opens_ ? world_.client->take_staleness() : 0; }
  std::vector<optim::TablePart> save(std::uint64_t step) override;
  TrainedBatches trained(TableId table) const override { return sum_of_trained(batches_[table]); }
  Nanoseconds waited() const override { return waited_; }
  void predict(const KeyCounts& counts, Prediction& sum) const override;

 private:
  TableBatch& batch(TableId table, std::uint64_t turn) { return *batches_[table][turn % batches_[table].size()]; }
  TableBatch& batch(TableId table) { return batch(table, turn_); }
  void pull(std::span<const KeyBatch> keys, std::uint64_t turn, std::uint64_t version, RowUse use);
  void wait(const auto& what);

  const Plan& plan_;
  const World& world_;
  const bool opens_;
  RowClient rows_;
  std::vector<std::vector<std::unique_ptr<TableBatch>>> batches_;  ///< by table
  std::vector<std::unique_ptr<RowCache>> caches_;                  ///< by table; null: there is none
  std::uint64_t turn_ = 0;                                         ///< of the batch that was fetched last
  std::uint64_t version_ = 0;
  RowUse use_ = RowUse::read;
  Range ahead_;  ///< steps whose rows are on their way
  bool left_ = false;
  Nanoseconds waited_{0};
};

ServedTables::ServedTables(const Plan& plan, const World& world, bool opens)
    : plan_(plan),
      world_(world),
      opens_(opens),
      rows_((check(world.client != nullptr, "tables at servers need servers"), *world.client)) {
  for (const TableLayout& table : plan.layout.tables) {
    auto& own = batches_.emplace_back();
    for (std::size_t i = 0; i < batches_of(table); ++i)
      own.push_back(std::make_unique<TableBatch>(table, plan.rows.rules->of(table.name), world, parts_of(plan, table)));
    const std::size_t cached = cached_rows(plan, table);
    caches_.push_back(
        cached == 0 ? nullptr : std::make_unique<RowCache>(table, cached, RowCache::steps_of(plan.job), world.memory));
  }
}

void ServedTables::start() {
  if (opens_) world_.client->open(plan_.job.seed);
}

/// A batch's memory is used again once the rows of a later step have come: servers have then taken its gradients. Rows
/// for reading take the memory that neither the last step nor a step ahead has.
void ServedTables::fetch(std::span<const KeyBatch> keys, Step step, std::size_t /*virtual_worker*/, RowUse use) {
  turn_ = step.index + (use == RowUse::read ? plan_.job.table_lookahead : 0);
  version_ = left_ ? kFinalVersion : step.index;
  use_ = use;
  if (use != RowUse::read) ahead_ = {step.index + 1, step.index + 1};
  pull(keys, turn_, version_, use);
}

void ServedTables::fetch_ahead(std::span<const KeyBatch> keys, Step step) {
  check(step.index == ahead_.end, "rows of step {} are pulled where those of step {} are due", step.index, ahead_.end);
  ++ahead_.end;
  pull(keys, step.index, step.index, is_exact(plan_) ? RowUse::ahead : RowUse::train);
}

bool ServedTables::begin(Step step) {
  if (ahead_.empty() || step.index != ahead_.begin) return false;
  ++ahead_.begin;
  turn_ = version_ = step.index;
  use_ = RowUse::train;
  return true;
}

void ServedTables::pull(std::span<const KeyBatch> keys, std::uint64_t turn, std::uint64_t version, RowUse use) {
  for (TableId table = 0; table < keys.size(); ++table) {
    TableBatch& own = batch(table, turn);
    own.take(keys[table], use);
    RowKeys asked = own.row_keys();
    if (caches_[table] != nullptr && use == RowUse::train)
      asked.here = caches_[table]->take(version, own.keys(), own.rows().bytes());
    rows_.pull(table, asked, version, own.rows(), use);
  }
}

void ServedTables::wait(const auto& what) {
  const Moment start = world_.clock.now();
  what();
  waited_ += world_.clock.now() - start;
}

void ServedTables::acquire(TableId table) {
  wait([&] { rows_.wait(table, version_, use_); });
  if (caches_[table] != nullptr && use_ == RowUse::train)
    caches_[table]->keep(version_, batch(table).keys(), batch(table).rows().bytes());
  batch(table).arrived();
}

void ServedTables::grad_ready(TableId table) {
  const net::Encoding encoding = plan_.rows.rules->of(plan_.layout.tables[table].name).encoding();
  rows_.push(table, version_, batch(table).gradients(), encoding);
}

/// Rows that were pulled ahead come into this worker's memory: they are waited for, whether their step begins or not.
void ServedTables::quiesce() {
  for (TableId table = 0; table < batches_.size(); ++table) {
    wait([&] { rows_.wait_acknowledged(table); });
    for (std::uint64_t step = ahead_.begin; step < ahead_.end; ++step)
      wait([&] { rows_.wait(table, step, RowUse::train); });
  }
}

/// With units under ssp or asp, the servers know already.
void ServedTables::leave() {
  if (!plan_.consistency.each_push_updates) world_.client->leave();
  left_ = true;
}

/// Where servers own the dense parameters as well, these are saved together (Servers::wait_saved).
std::vector<optim::TablePart> ServedTables::save(std::uint64_t step) {
  if (opens_ && plan_.data_rank.value == 0) world_.client->save(step, 0);
  return {};
}

namespace {

/// Answers that a server keeps until they have arrived, of workers whose memory it has no access to. Nothing if that
/// depends on the hosts of the processes, or on what evaluations read, because a worker trains no key of the server.
std::optional<std::uint64_t> answer_bytes(const Plan& plan, TableId table, const KeyCounts& counts,
                                          std::size_t server) {
  if (!only_sockets(plan.job)) return plan.place.one_host ? std::optional<std::uint64_t>(0) : std::nullopt;
  for (std::size_t worker = 0; worker < plan.workers; ++worker)
    if (counts.moved(table, worker, server).trained == 0) return std::nullopt;
  const TableLayout& layout = plan.layout.tables[table];
  const std::size_t far = plan.workers - (server >= plan.job.standalone_servers() ? 1 : 0);  // one is in its process
  return far * (1 + layout.lookahead) * optim::answer_bytes(layout, is_exact(plan));
}

/// Payload between a worker and a server.
struct RowPayload {
  std::uint64_t asked = 0;     ///< keys
  std::uint64_t answered = 0;  ///< rows
  std::uint64_t pushed = 0;    ///< gradients of rows
};

RowPayload payload_of(const TableLayout& layout, const optim::TableRule& rule, const KeyCounts::Moved& keys) {
  return {.asked = keys.asked * optim::key_bytes(rule.rows.counts()) + keys.cached_bytes,
          .answered = (keys.asked - keys.cached) * layout.row_bytes() + keys.mark_bytes,
          .pushed = keys.trained * rule.gradient_bytes(layout)};
}

RowTraffic mean_traffic(const Plan& plan, TableId table, const KeyCounts& counts) {
  const TableLayout& layout = plan.layout.tables[table];
  RowTraffic mean{.pieces = layout.pieces, .in_parts = is_exact(plan) && layout.lookahead > 0};
  const auto all = static_cast<double>(plan.workers * counts.owners() * std::max<std::uint64_t>(1, counts.steps()));
  const auto add = [&](double& to, std::uint64_t bytes) { to += static_cast<double>(bytes) / all; };
  for (std::size_t worker = 0; worker < plan.workers; ++worker)
    for (std::size_t server = 0; server < counts.owners(); ++server) {
      const KeyCounts::Moved& keys = counts.moved(table, worker, server);
      const RowPayload payload = payload_of(layout, plan.rows.rules->of(layout.name), keys);
      add(mean.frames, keys.frames);
      add(mean.key_bytes, payload.asked);
      add(mean.row_bytes, payload.answered);
      add(mean.early_bytes, keys.early * layout.row_bytes() + keys.mark_bytes);
      add(mean.gradient_bytes, payload.pushed);
    }
  return mean;
}

}  // namespace

void ServedTables::predict(const KeyCounts& counts, Prediction& sum) const {
  sum.exposed_s.reset();  // of the dense parameters alone: a step waits for rows, too
  sum.worker_sends = sum.worker_sends.value_or(0);
  sum.worker_receives = sum.worker_receives.value_or(0);
  sum.server_sends = sum.server_sends.value_or(0);
  sum.server_receives = sum.server_receives.value_or(0);
  if (plan_.place.replicas > 0) sum.server_replicates = sum.server_replicates.value_or(0);
  if (plan_.job.server_in(plan_.data_rank.value)) {
    sum.own_server_receives = sum.own_server_receives.value_or(0);
    sum.own_server_sends = sum.own_server_sends.value_or(0);
  }
  auto& servers = sum.each_server_memory;
  servers.resize(counts.owners(), sum.server_memory);
  // The communication that dense parameters book may not be predicted.
  bool known = sum.server_memory.empty() || sum.server_memory.contains(Category::communication);
  for (TableId table = 0; table < batches_.size(); ++table) {
    const TableLayout& layout = plan_.layout.tables[table];
    const optim::TableRule& rule = plan_.rows.rules->of(layout.name);
    const bool counted = rule.rows.counts();
    sum.rows.push_back(mean_traffic(plan_, table, counts));
    for (std::size_t worker = 0; worker < plan_.workers; ++worker)
      for (std::size_t server = 0; server < counts.owners(); ++server) {
        if (plan_.job.server_in(worker) == server) continue;  // within a process nothing is sent
        const auto [asked, answered, pushed] = payload_of(layout, rule, counts.moved(table, worker, server));
        const std::uint64_t sent = asked + pushed;
        if (worker == plan_.data_rank.value) {
          sum.run_sends += sent;
          sum.run_receives += answered;
        }
        if (plan_.job.server_in(plan_.data_rank.value) == server) {
          sum.run_own_server_receives += sent;
          sum.run_own_server_sends += answered;
        }
        sum.run_server_receives += sent;
        sum.run_server_sends += answered;
      }
    for (std::size_t i = 0; i < batches_of(layout); ++i)
      TableBatch::predict(layout, rule, parts_of(plan_, layout), sum);
    RowCache::predict(layout, cached_rows(plan_, layout), sum);
    for (std::size_t owner = 0; owner < servers.size(); ++owner) {
      for (const auto& [category, bytes] : row_memory(layout, *rule.rule, counts.most(table, owner)))
        servers[owner][category] += bytes;
      if (optim::keeps_old_rows(plan_.job))
        servers[owner][Category::parameters] += optim::old_row_bytes(layout, plan_.workers);
      const std::optional<std::uint64_t> answers = answer_bytes(plan_, table, counts, owner);
      known = known && answers.has_value();
      servers[owner][Category::communication] +=
          optim::key_list_bytes(layout, plan_.workers, counted, is_exact(plan_)) + answers.value_or(0);
    }
  }
  const auto total = [](const auto& memory) {
    std::uint64_t bytes = 0;
    for (const auto& [category, booked] : memory) bytes += booked;
    return bytes;
  };
  for (auto& memory : servers) {
    if (!known) memory.erase(Category::communication);
    if (!knows_index(plan_)) memory.erase(Category::index);
  }
  sum.server_memory = *std::ranges::max_element(servers, {}, total);
}

}  // namespace

std::unique_ptr<Tables> make_served_tables(const Plan& plan, const World& world, bool opens) {
  if (Planned* device = planned(world.device)) return device->make_tables();
  return std::make_unique<ServedTables>(plan, world, opens);
}

std::size_t lent_bytes(const TableLayout& table) { return batches_of(table) * TableBatch::lent_bytes(table); }

}  // namespace psring::worker
