// The C interface: rows that are read from files, without a job.
#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <psring/c.h>
#include <psring/worker/c/guard.h>
#include <psring/worker/tables/saved_tables.h>

using psring::ErrorKind;
using psring::fail;
using psring::c::guarded;
using psring::c::require;

struct psring_saved {
  psring::worker::SavedTables rows;
  std::vector<std::string> tables;
};

namespace {

/// Calls `body` with the rows and the table's name.
template <class Body>
psring_status on(psring_saved* saved, const char* function, size_t number, Body body) {
  return guarded([&] {
    if (saved == nullptr) fail(ErrorKind::usage, "{}: saved is null", function);
    if (number >= saved->tables.size())
      fail(ErrorKind::usage, "{}: table {} of {}", function, number, saved->tables.size());
    body(saved->rows, saved->tables[number]);
  });
}

}  // namespace

psring_status psring_saved_open(const char* path, psring_saved** saved) {
  return guarded([&] {
    require(saved, "psring_saved_open: saved");
    *saved = nullptr;
    require(path, "psring_saved_open: path");
    psring::worker::SavedTables rows(path);
    std::vector<std::string> tables = rows.tables();
    *saved = new psring_saved{std::move(rows), std::move(tables)};
  });
}

void psring_saved_free(psring_saved* saved) { delete saved; }

psring_status psring_saved_tables(psring_saved* saved, size_t* count, uint64_t* step) {
  return guarded([&] {
    require(saved, "psring_saved_tables: saved");
    if (count != nullptr) *count = saved->tables.size();
    if (step != nullptr) *step = saved->rows.step().value_or(std::numeric_limits<uint64_t>::max());
  });
}

psring_status psring_saved_table(psring_saved* saved, size_t number, const char** name, size_t* width) {
  return on(saved, "psring_saved_table", number,
            [&](const psring::worker::SavedTables& rows, const std::string& table) {
              if (name != nullptr) *name = table.c_str();
              if (width != nullptr) *width = rows.width(table);
            });
}

psring_status psring_saved_count(psring_saved* saved, size_t number, uint64_t* count) {
  return on(saved, "psring_saved_count", number,
            [&](const psring::worker::SavedTables& rows, const std::string& table) {
              require(count, "psring_saved_count: rows");
              *count = rows.count(table);
            });
}

psring_status psring_saved_read(psring_saved* saved, size_t number, const uint64_t* keys, size_t count, float* values,
                                unsigned char* found) {
  return on(saved, "psring_saved_read", number, [&](const psring::worker::SavedTables& rows, const std::string& table) {
    if (count == 0) return;
    require("psring_saved_read", {{keys, "keys"}, {values, "values"}, {found, "found"}});
    const std::size_t width = rows.width(table);
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<float> row(values + i * width, width);
      found[i] = rows.find(table, keys[i], row) ? 1 : 0;
      if (found[i] == 0) std::ranges::fill(row, 0.0F);
    }
  });
}
