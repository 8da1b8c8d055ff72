// The C interface: the tables that the job's servers own.
#include <span>

#include <psring/c.h>
#include <psring/common/base/system/mutex.h>
#include <psring/worker/c/guard.h>
#include <psring/worker/c/handles.h>
#include <psring/worker/tables/table_setup.h>

using psring::ErrorKind;
using psring::fail;
using psring::c::guarded;
using psring::c::moment_in;
using psring::c::require;
using psring::c::whole;
using psring::c::write_moved;
using psring::worker::Bags;
using psring::worker::FetchedRows;
using psring::worker::TableClient;

namespace {

constexpr std::size_t kMostKeys = std::size_t{1} << 16;

psring::TableLayout layout_of(const psring_table_options& options) {
  require(options.name, "psring_table_open: name");
  if (options.type != PSRING_F32 && options.type != PSRING_BF16)
    fail(ErrorKind::usage, "psring_table_open: table '{}' of type {}: rows travel in f32 or bf16", options.name,
         options.type);
  const std::size_t most = options.most_keys == 0 ? kMostKeys : options.most_keys;
  return {.name = options.name,
          .width = options.width,
          .type = options.type == PSRING_F32 ? psring::DType::f32 : psring::DType::bf16,
          .init = psring::worker::parse_row_init("psring_table_open: init",
                                                 options.init == nullptr ? "uniform:0.05" : options.init),
          .most_keys = most,
          .most_bags = most};
}

/// Calls `body` with the tables of the job.
template <class Body>
psring_status on_tables(psring_job* job, const char* function, Body body) {
  return guarded([&] {
    if (job == nullptr) fail(ErrorKind::usage, "{}: job is null", function);
    job->job->require_member();
    return body(job->job->open_tables());
  });
}

/// Calls `body` with the table.
template <class Body>
psring_status on(psring_table* table, const char* function, Body body) {
  return guarded([&] {
    if (table == nullptr) fail(ErrorKind::usage, "{}: table is null", function);
    table->job->require_member();
    return body(*table->tables);
  });
}

/// Calls `body` with tables and rows.
template <class Body>
psring_status on(psring_rows* rows, const char* function, bool wants_arrived, Body body) {
  return guarded([&] {
    if (rows == nullptr) fail(ErrorKind::usage, "{}: rows is null", function);
    rows->table.job->require_own_process();
    if (wants_arrived && !rows->rows->arrived())
      fail(ErrorKind::usage, "{}: the rows are not here: psring_rows_wait comes first", function);
    return body(*rows->table.tables, rows->rows);
  });
}

Bags bags_of(const psring_bags* given, const FetchedRows& rows) {
  const psring_bags bags = whole(given, "psring_bags");
  if (bags.mean != 0 && bags.mean != 1) fail(ErrorKind::usage, "psring_bags: mean is {}; 0 or 1", bags.mean);
  if (bags.places == nullptr && bags.lookups != rows.places().size())
    fail(ErrorKind::usage, "psring_bags: {} lookups without places, of {} keys", bags.lookups, rows.places().size());
  if (bags.begins == nullptr && bags.bags != bags.lookups)
    fail(ErrorKind::usage, "psring_bags: {} bags of {} lookups without begins", bags.bags, bags.lookups);
  if (bags.begins != nullptr && bags.bags == 0 && bags.lookups > 0)
    fail(ErrorKind::usage, "psring_bags: no bag for {} lookups", bags.lookups);
  Bags made;
  made.places = bags.places == nullptr ? rows.places() : std::span(bags.places, bags.lookups);
  if (bags.begins != nullptr) made.begins = {bags.begins, bags.bags};
  if (bags.weights != nullptr) made.weights = {bags.weights, bags.lookups};
  made.mean = bags.mean == 1;
  return made;
}

}  // namespace

psring_status psring_table_open(psring_job* job, const psring_table_options* options, psring_table** table) {
  return guarded([&] {
    require(table, "psring_table_open: table");
    *table = nullptr;
    require(job, "psring_table_open: job");
    job->job->require_member();
    psring::TableLayout layout = layout_of(whole(options, "psring_table_open: options"));
    TableClient& tables = job->job->open_tables();
    const std::size_t width = layout.width;
    const psring::MutexLock lock(job->opening);
    const std::size_t number = tables.add(std::move(layout));
    *table = &job->tables.emplace_back(psring_table{job->job, &tables, number, width});
  });
}

psring_status psring_table_start(psring_job* job, uint64_t* step) {
  return on_tables(job, "psring_table_start", [&](TableClient& tables) {
    require(step, "psring_table_start: step");
    *step = tables.start();
  });
}

psring_status psring_table_fetch(psring_table* table, const uint64_t* keys, size_t count, uint64_t version,
                                 psring_rows** rows) {
  return on(table, "psring_table_fetch", [&](TableClient& tables) {
    require(rows, "psring_table_fetch: rows");
    *rows = nullptr;
    if (count > 0) require(keys, "psring_table_fetch: keys");
    *rows = new psring_rows{*table, tables.fetch(table->number, {keys, count}, version)};
  });
}

psring_status psring_rows_wait(psring_rows* rows, double timeout) {
  return on(rows, "psring_rows_wait", false, [&](TableClient& tables, const std::shared_ptr<FetchedRows>& held) {
    if (!held->arrived()) rows->table.job->require_member();
    return tables.wait(*held, moment_in(timeout)) ? PSRING_OK : psring::c::pending("rows have not come yet");
  });
}

psring_status psring_rows_values(psring_rows* rows, const float** values, const int64_t** places, size_t* different) {
  return on(rows, "psring_rows_values", true, [&](TableClient& /*tables*/, const std::shared_ptr<FetchedRows>& held) {
    require("psring_rows_values", {{values, "values"}, {places, "places"}, {different, "different"}});
    *values = held->values().data();
    *places = held->places().data();
    *different = held->size();
  });
}

psring_status psring_rows_pool(psring_rows* rows, const psring_bags* bags, float* out) {
  return on(rows, "psring_rows_pool", true, [&](TableClient& /*tables*/, const std::shared_ptr<FetchedRows>& held) {
    const Bags made = bags_of(bags, *held);
    if (made.size() > 0) require(out, "psring_rows_pool: out");
    held->pool(made, {out, made.size() * held->width()});
  });
}

psring_status psring_rows_add_pooled(psring_rows* rows, const psring_bags* bags, const float* gradients) {
  return on(rows, "psring_rows_add_pooled", true, [&](TableClient& tables, const std::shared_ptr<FetchedRows>& held) {
    const Bags made = bags_of(bags, *held);
    if (made.size() > 0) require(gradients, "psring_rows_add_pooled: gradients");
    tables.add(held, made, {gradients, made.size() * held->width()});
  });
}

psring_status psring_rows_add(psring_rows* rows, const float* gradients) {
  return on(rows, "psring_rows_add", true, [&](TableClient& tables, const std::shared_ptr<FetchedRows>& held) {
    if (held->size() > 0) require(gradients, "psring_rows_add: gradients");
    tables.add(held, {gradients, held->size() * held->width()});
  });
}

void psring_rows_free(psring_rows* rows) {
  if (rows == nullptr || !rows->table.job->is_own_process()) return;
  guarded([&] { delete rows; });
}

psring_status psring_table_wait(psring_job* job, double timeout) {
  return on_tables(job, "psring_table_wait", [&](TableClient& tables) {
    return tables.wait_idle(moment_in(timeout)) ? PSRING_OK
                                                : psring::c::pending("the servers have not taken the step yet");
  });
}

psring_status psring_table_end_step(psring_job* job, double lr) {
  return on_tables(job, "psring_table_end_step", [&](TableClient& tables) { tables.end_step(lr); });
}

psring_status psring_table_add(psring_table* table, const uint64_t* keys, size_t count, const float* gradients) {
  return on(table, "psring_table_add", [&](TableClient& tables) {
    if (count > 0) require(keys, "psring_table_add: keys");
    if (count > 0) require(gradients, "psring_table_add: gradients");
    tables.add(table->number, {keys, count}, {gradients, count * table->width});
  });
}

psring_status psring_table_drop(psring_job* job) {
  return on_tables(job, "psring_table_drop", [&](TableClient& tables) { tables.drop(); });
}

psring_status psring_table_assign(psring_table* table, const uint64_t* keys, size_t count, const float* values) {
  return on(table, "psring_table_assign", [&](TableClient& tables) {
    if (count > 0) require(keys, "psring_table_assign: keys");
    if (count > 0) require(values, "psring_table_assign: values");
    tables.assign(table->number, {keys, count}, {values, count * table->width});
  });
}

psring_status psring_table_list(psring_table* table, uint64_t* cursor, size_t most, uint64_t* keys, float* values,
                                size_t* count, double timeout) {
  return on(table, "psring_table_list", [&](TableClient& tables) {
    require("psring_table_list", {{cursor, "cursor"}, {keys, "keys"}, {values, "values"}, {count, "count"}});
    const std::span<float> room(values, most * table->width);
    const bool come = tables.list(table->number, *cursor, {keys, most}, room, *count, moment_in(timeout));
    return come ? PSRING_OK : psring::c::pending("the list has not come yet");
  });
}

psring_status psring_table_moved(psring_job* job, uint64_t* sent, uint64_t* received) {
  return on_tables(job, "psring_table_moved", [&](TableClient& tables) {
    require("psring_table_moved", {{sent, "sent"}, {received, "received"}});
    write_moved(tables.moved(), sent, received);
  });
}

psring_status psring_table_predict(psring_job* job, uint64_t* sent, uint64_t* received) {
  return on_tables(job, "psring_table_predict", [&](TableClient& tables) {
    require("psring_table_predict", {{sent, "sent"}, {received, "received"}});
    write_moved(tables.predicted(), sent, received);
  });
}
