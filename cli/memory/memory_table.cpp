// psring memory --table: a table of which only its size, and the distribution of its keys, is known.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <psring/cli/memory/memory_command.h>
#include <psring/cli/memory/memory_formulas.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/worker/exchange/tables/local_tables.h>
#include <psring/worker/exchange/tables/table_batch.h>
#include <psring/worker/tables/table_setup.h>

namespace psring::cli {
namespace {

constexpr double kMostRows = std::numeric_limits<std::uint32_t>::max();
constexpr double kMostLookups = 1 << 28;

/// The options of a job that the formulas take.
const std::set<std::string, std::less<>> kTableOptions{"workers",         "servers",    "steps",    "table-compress",
                                                       "table-optimizer", "table-type", "transport"};

/// The factors of 26x2048, two or at least `least`. Throws usage.
std::vector<double> factors_of(const char* flag, const std::string& text, std::size_t least, const char* expected) {
  std::vector<double> factors;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    try {
      factors.push_back(parse_parameters(flag, text.substr(at, end - at)));
    } catch (const Error&) {
      fail(ErrorKind::usage, "{}: expected {}, got '{}'", flag, expected, text);
    }
    at = end + 1;
  }
  if (factors.size() < least || factors.size() > 2)
    fail(ErrorKind::usage, "{}: expected {}, got '{}'", flag, expected, text);
  return factors;
}

struct TableMemory {
  double rows = 0;  ///< of all servers, at the end
  double keys = 0;  ///< different keys of a batch
  worker::Prediction worker;
  std::map<Category, std::uint64_t> server;
  double sends = 0;  ///< bytes of a worker in a step
  double receives = 0;
};

/// The expected memory of an index of so many keys: those of each of its maps have a Poisson distribution.
std::uint64_t expected_index_bytes(double keys) {
  const double mean = keys / optim::RowIndex::kMaps;
  const double reach = 8 * std::sqrt(mean) + 8;
  std::array<std::size_t, optim::RowIndex::kMaps> by_map{};
  double bytes = 0;
  for (double in_map = std::max(1.0, std::floor(mean - reach)); in_map <= mean + reach; ++in_map) {
    by_map.fill(static_cast<std::size_t>(in_map));
    bytes += std::exp(in_map * std::log(mean) - mean - std::lgamma(in_map + 1)) *
             static_cast<double>(optim::RowIndex::booked_bytes(by_map));
  }
  return static_cast<std::uint64_t>(bytes);
}

TableMemory predict(const MemoryFlags& flags, const JobOptions& job, const optim::TableRules& rules, double rows,
                    std::size_t width, double lookups) {
  const auto batch = static_cast<std::size_t>(lookups);
  const TableLayout table{.name = "table",
                          .width = width,
                          .type = parse_dtype("--table-type", job.table_type),
                          .most_keys = batch,
                          .most_bags = batch,
                          .lookahead = job.table_lookahead};
  worker::check_gain({&table, 1}, rules);
  const optim::TableRule& rule = rules.of(table.name);
  TableMemory memory{.keys = expected_keys(rows, flags.zipf, lookups)};
  const double draws = lookups * static_cast<double>(job.workers) * static_cast<double>(job.steps.value_or(0));
  memory.rows = job.steps ? expected_keys(rows, flags.zipf, draws) : rows;
  const auto row_bytes = static_cast<double>(table.row_bytes());
  memory.sends = memory.keys * static_cast<double>(optim::key_bytes(false) + rule.gradient_bytes(table));
  memory.receives = memory.keys * row_bytes;
  const bool exact = !parse_consistency(job.row_consistency()).each_push_updates;
  for (std::size_t turn = 0; turn < worker::batches_of(table); ++turn)
    worker::TableBatch::predict(table, rule, worker::TableBatch::Parts::none, memory.worker);
  const double owned = memory.rows / static_cast<double>(job.servers);
  worker::KeyCounts::Most most{.rows = static_cast<std::size_t>(std::ceil(owned))};
  most.index_bytes = expected_index_bytes(owned);
  memory.server = worker::row_memory(table, *rule.rule, most);
  memory.server[Category::communication] = optim::key_list_bytes(table, job.workers, false, exact);
  if (job.transport == "tcp")
    memory.server[Category::communication] += job.workers * optim::answer_bytes(table, exact) * (1 + table.lookahead);
  return memory;
}

}  // namespace

double expected_keys(double rows, double exponent, double draws) {
  // The share of the keys from 1 to k is F(k + 1) / F(rows + 1).
  const auto sum = [&](double x) {
    return exponent == 1 ? std::log(x) : (std::pow(x, 1 - exponent) - 1) / (1 - exponent);
  };
  const double all = sum(rows + 1);
  double keys = 0;
  for (double first = 1; first <= rows;) {
    // Keys are taken one by one, and then in groups of nearly equal probabilities.
    const double next = std::min(first + std::max(1.0, std::floor(first / 1024)), rows + 1);
    const double share = (sum(next) - sum(first)) / all / (next - first);
    keys -= (next - first) * std::expm1(draws * std::log1p(-std::min(share, 1 - 1e-15)));
    first = next;
  }
  return keys;
}

int table_memory(const MemoryFlags& flags, const App& app) {
  if (flags.job.contains("model"))
    fail(ErrorKind::usage, "--table: means nothing with --model, whose tables are known");
  for (const auto& [name, text] : flags.job)
    if (!kTableOptions.contains(name)) fail(ErrorKind::usage, "--{}: means nothing with --table; give a --model", name);
  for (const auto& [given, name] : {std::pair(!flags.limit.empty(), "--limit"),
                                    {flags.hosts != MemoryFlags().hosts, "--hosts"},
                                    {flags.strategies != MemoryFlags().strategies, "--strategies"}})
    if (given) fail(ErrorKind::usage, "{}: means nothing with --table", name);
  const auto size = factors_of("--table", flags.table, 2, "ROWSxDIM, such as 100Mx64");
  const auto batch = factors_of("--lookups", flags.lookups, 1, "lookups of a worker's batch, such as 16384 or 26x2048");
  const double lookups = batch.front() * (batch.size() > 1 ? batch.back() : 1);
  if (size[0] > kMostRows || size[1] > 8192 || size[1] != std::floor(size[1]))
    fail(ErrorKind::usage, "--table {}: expected fewer than 2^32 rows of 1 to 8192 values", flags.table);
  if (lookups > kMostLookups) fail(ErrorKind::usage, "--lookups {}: expected at most 2^28", flags.lookups);
  if (!(flags.zipf >= 0 && flags.zipf <= 4)) fail(ErrorKind::usage, "--zipf: expected 0 to 4, got {}", flags.zipf);
  options::Given given = flags.job;
  given.try_emplace("workers", "1");
  JobOptions job = options::job_of(given);
  job.servers = given.contains("servers") ? parse_positive("--servers", given["servers"]) : 1;
  options::check_count("--servers", job.servers, options::kMostProcesses);
  const optim::TableRules rules(job, app.optimizers());
  const TableMemory memory = predict(flags, job, rules, size[0], static_cast<std::size_t>(size[1]), lookups);
  if (flags.json) {
    out::print("{}\n", Json{{"rows", std::llround(memory.rows)},
                            {"keys", memory.keys},
                            {"worker_sends", std::llround(memory.sends)},
                            {"worker_receives", std::llround(memory.receives)},
                            {"worker", json_of(memory.worker.worker_memory)},
                            {"server", json_of(memory.server)}}
                           .dump(2));
    return 0;
  }
  const Language language = flags.language();
  TextTable table(memory_head(language, true));
  table.add(memory_row("worker", memory.worker.worker_memory, true));
  table.add(memory_row("server", memory.server, true));
  out::print("{}{}", table.plain(80),
             wrapped(say(language,
                         {"{:.0f} rows; {:.0f} different keys in a batch of {:.0f} lookups; a worker sends {} and "
                          "receives {} in a step",
                          "{0:.0f} 行；一批 {2:.0f} 次查找中有 {1:.0f} 个不同的键；每个 worker 每步发送 {3}，接收 {4}"},
                         memory.rows, memory.keys, lookups, size_text(memory.sends), size_text(memory.receives)),
                     80, 2));
  return 0;
}

}  // namespace psring::cli
