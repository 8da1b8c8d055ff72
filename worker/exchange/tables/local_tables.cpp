#include <algorithm>

#include <psring/common/device/mapping.h>
#include <psring/common/proc/job.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/exchange/tables/local_tables.h>

namespace psring::worker {

LocalTables::LocalTables(const Plan& plan, const World& world) : plan_(plan) {
  const std::vector<TableLayout>& tables = plan.layout.tables;
  for (TableId table = 0; table < tables.size(); ++table) {
    const optim::TableRule& rule = plan.rows.rules->of(tables[table].name);
    rows_.push_back(std::make_unique<optim::TableRows>(optim::TableRows::Options{.number = table,
                                                                                 .width = tables[table].width,
                                                                                 .init = tables[table].init,
                                                                                 .seed = plan.job.seed,
                                                                                 .rule = rule.rule.get(),
                                                                                 .rules = rule.rows,
                                                                                 .codec = rule.codec.get(),
                                                                                 .most_bytes = host_memory_bytes()},
                                                       world.memory));
    auto& own = batches_.emplace_back();
    for (std::size_t worker = 0; worker < plan.job.virtual_workers; ++worker)
      own.push_back(std::make_unique<TableBatch>(tables[table], rule, world, TableBatch::Parts::none));
    gradients_.emplace_back(plan.job.virtual_workers);
  }
}

void LocalTables::start() {
  if (plan_.job.resume.empty()) return;
  const optim::Checkpoint saved(plan_.job.resume);
  for (TableId table = 0; table < rows_.size(); ++table)
    optim::read_rows(saved, plan_.layout.tables[table].name, {0, kBuckets}, *rows_[table]);
}

std::vector<optim::TablePart> LocalTables::own_rows() const {
  std::vector<optim::TablePart> parts;
  for (TableId table = 0; table < rows_.size(); ++table)
    parts.push_back({&plan_.layout.tables[table], {0, kBuckets}, rows_[table].get()});
  return parts;
}

void LocalTables::fetch(std::span<const KeyBatch> keys, Step /*step*/, std::size_t virtual_worker, RowUse use) {
  current_ = virtual_worker;
  for (TableId table = 0; table < keys.size(); ++table) batch(table).take(keys[table], use);
}

void LocalTables::acquire(TableId table) {
  rows_[table]->read(batch(table).keys(), batch(table).rows());
  batch(table).arrived();
}

void LocalTables::grad_ready(TableId table) {
  gradients_[table][current_] = {{batch(table).keys(), batch(table).gradients(), batch(table).counts()}};
}

void LocalTables::finish(Step step) {
  for (TableId table = 0; table < rows_.size(); ++table) {
    const double lr = plan_.rows.rules->of(plan_.layout.tables[table].name).lr;
    const optim::Update update{.count = step.index + 1, .lr = plan_.rows.schedule->lr(lr, step.index)};
    rows_[table]->update(update, gradients_[table], 1.0F / static_cast<float>(plan_.job.virtual_workers));
    for (auto& worker : gradients_[table]) worker.clear();
  }
}

bool knows_index(const Plan& plan) {
  const std::vector<TableLayout>& tables = plan.layout.tables;
  return tables.size() < 2 || std::ranges::none_of(tables, [&](const TableLayout& table) {
           return plan.rows.rules->of(table.name).rows.sweeps();
         });
}

std::map<Category, std::uint64_t> row_memory(const TableLayout& table, const optim::RowRule& rule,
                                             const KeyCounts::Most& most) {
  const optim::RecordMemory::Sizes sizes = optim::TableRows::record_sizes(table.width, rule);
  const std::uint64_t booked = sizes.booked_bytes(most.rows);
  const std::uint64_t values = sizes.parameter_bytes(booked);
  return {{Category::parameters, values},
          {Category::optimizer, booked - values + optim::RowCounters::kSizes.booked_bytes(most.counters)},
          {Category::gradients, optim::TableRows::scratch_bytes(table.width)},
          {Category::index, most.index_bytes}};
}

void LocalTables::predict(const KeyCounts& counts, Prediction& sum) const {
  for (TableId table = 0; table < rows_.size(); ++table) {
    const TableLayout& layout = plan_.layout.tables[table];
    const optim::TableRule& rule = plan_.rows.rules->of(layout.name);
    for (std::size_t worker = 0; worker < plan_.job.virtual_workers; ++worker)
      TableBatch::predict(layout, rule, TableBatch::Parts::none, sum);
    for (const auto& [category, bytes] : row_memory(layout, *rule.rule, counts.most(table, 0)))
      sum.worker_memory[category] += bytes;
  }
  if (!knows_index(plan_)) sum.worker_memory.erase(Category::index);
}

}  // namespace psring::worker
