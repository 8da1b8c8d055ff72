#include <map>

#include <fmt/format.h>

#include <psring/cli/compare/compare_sections.h>
#include <psring/cli/compare/table_cells.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

Section speed_section(const std::vector<Row>& rows) {
  const ModelColumns columns = model_columns(rows);
  using Result = ModelColumns::Result;
  const bool accuracy = columns.result == Result::accuracy || columns.result == Result::loss;
  const std::string result = columns.result == Result::perplexity ? "perplexity"
                             : accuracy                           ? "accuracy"
                                                                  : columns.metric;
  TextTable table({"strategy", "runs", std::string(columns.rate_name), "least", "most", "ms/step", "least", "most",
                   "spread", "p10", "p90", "exposed", "loss", "test loss", result, "equal", "largest difference"});
  for (const Row& row : rows) {
    const Summary& first = row.runs.front();
    const Spread rate = row.spread(columns.rate);
    const Spread step = row.spread(&Summary::step_seconds);
    table.add({row.entry.label, std::to_string(row.runs.size()), time_cell(row, number(rate.median, 0)),
               number(rate.least, 0), number(rate.most, 0), time_cell(row, number(1e3 * step.median, 3)),
               number(1e3 * step.least, 3), number(1e3 * step.most, 3),
               row.runs.size() > 1 ? percent(step.relative()) : kNothing,
               number(1e3 * row.spread(&Summary::step_p10_seconds).median, 3),
               number(1e3 * row.spread(&Summary::step_p90_seconds).median, 3),
               number(1e3 * row.spread(&Summary::exposed_seconds).median, 3), number(first.final_loss, 4),
               number(first.test_loss, 4), accuracy ? number(first.test_accuracy, 4) : columns.result_cell(first),
               to_string(row.equality),
               row.largest_difference ? fmt::format("{:.2g}", *row.largest_difference) : kNothing});
  }
  return {"Speed: medians over runs, with the least and the most; p10, p90: percentiles of the steps of a run",
          std::move(table)};
}

/// Table rows by process. Processes of a role that agree in all cells share a row: "2 workers" in place of "worker 0".
class Folded {
 public:
  void add(const std::string& process, const std::vector<std::string>& cells) {
    const std::string role = process.substr(0, process.find(' '));
    for (Group& group : groups_)
      if (group.role == role && group.cells == cells) {
        ++group.count;
        return;
      }
    groups_.push_back({role, process, cells, 1});
  }
  void print(const std::string& label, TextTable& table) const {
    for (const Group& group : groups_) {
      std::vector<std::string> row{label, group.count == 1 ? group.first : count_of(group.count, group.role)};
      row.insert(row.end(), group.cells.begin(), group.cells.end());
      table.add(std::move(row));
    }
  }

 private:
  struct Group {
    std::string role;
    std::string first;
    std::vector<std::string> cells;
    std::size_t count;
  };
  std::vector<Group> groups_;
};

/// Three cells: measured, predicted, and the difference.
std::vector<std::string> checked(std::uint64_t measured, const std::optional<std::uint64_t>& predicted) {
  if (!predicted) return {std::to_string(measured), kNothing, kNothing};
  return {std::to_string(measured), std::to_string(*predicted), signed_difference(measured, *predicted)};
}

Section bytes_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "process", "direction", "bytes a step", "formula", "difference"});
  for (const Row& row : rows) {
    Folded folded;
    const std::uint64_t steps = row.runs.front().steps;
    for (const ByteCheck& check : row.runs.front().bytes) {
      std::vector<std::string> cells{check.direction};
      const std::optional<std::uint64_t> predicted =
          check.predicted ? std::optional(*check.predicted / steps) : std::nullopt;
      for (std::string& cell : checked(check.measured / steps, predicted)) cells.push_back(std::move(cell));
      folded.add(check.role, cells);
    }
    folded.print(row.entry.label, table);
  }
  return {"Payload bytes of a step; all servers together", std::move(table)};
}

std::string mib(const std::map<std::string, std::uint64_t>& by_process, const std::string& process) {
  const auto found = by_process.find(process);
  return found == by_process.end() ? kNothing : number(static_cast<double>(found->second) / kMiB, 1);
}

Section memory_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "process", "category", "booked", "formula", "difference"});
  for (const Row& row : rows) {
    Folded folded;
    for (const MemoryCheck& check : row.runs.front().memory) {
      if (check.peak == 0 && check.ok()) continue;
      std::vector<std::string> cells{check.category};
      for (std::string& cell : checked(check.peak, check.predicted)) cells.push_back(std::move(cell));
      folded.add(check.role, cells);
    }
    folded.print(row.entry.label, table);
  }
  return {"Memory that each process books: the peak of each category, in bytes", std::move(table)};
}

Section system_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "process", "booked MiB", "RSS MiB", "Pss MiB"});
  for (const Row& row : rows) {
    const Summary& run = row.runs.front();
    std::map<std::string, std::uint64_t> booked;
    for (const MemoryCheck& check : run.memory) booked[check.role] += check.peak;
    std::uint64_t all = 0;
    for (const auto& [process, bytes] : booked) {
      table.add({row.entry.label, process, mib(booked, process), mib(run.system_memory.rss, process),
                 mib(run.system_memory.pss, process)});
      all += bytes;
    }
    const std::optional<std::uint64_t>& together = run.system_memory.pss_together;
    table.add({row.entry.label, "all at once", number(static_cast<double>(all) / kMiB, 1), kNothing,
               together ? number(static_cast<double>(*together) / kMiB, 1) : kNothing});
  }
  return {
      "Memory that the operating system counts, at its peak; in Pss a page that n processes share counts 1/n in each",
      std::move(table)};
}

/// Memory of the largest worker, as far as sharding affects it.
struct ModelStates {
  std::uint64_t kept = 0;   ///< parameters, gradients, optimizer
  std::uint64_t whole = 0;  ///< these, and communication: units that are temporarily whole
};

ModelStates model_states(const Row& row) {
  std::map<std::string, ModelStates> by_worker;
  for (const MemoryCheck& check : row.runs.front().memory) {
    if (!check.role.starts_with(kWorkers) || check.category == "activations") continue;
    ModelStates& states = by_worker[check.role];
    if (check.category != "communication") states.kept += check.peak;
    states.whole += check.peak;
  }
  ModelStates most;
  for (const auto& [worker, states] : by_worker)
    if (states.whole >= most.whole) most = states;
  return most;
}

/// Returns the row of the same job under which workers keep everything (ddp), or null.
const Row* whole_row(const std::vector<Row>& rows, const Row& row) {
  for (const Row& other : rows) {
    const JobOptions& a = other.entry.job;
    const JobOptions& b = row.entry.job;
    if (other.entry.kind->ring && other.entry.kind->stage == 0 && other.entry.exact() && a.workers == b.workers &&
        a.model == b.model && a.optimizer == b.optimizer && a.momentum == b.momentum && a.units == b.units &&
        a.precision == b.precision && a.comm_dtype == b.comm_dtype)
      return &other;
  }
  return nullptr;
}

std::string times(std::uint64_t whole, std::uint64_t part) {
  return part == 0 ? kNothing : fmt::format("{:.2f} ×", static_cast<double>(whole) / static_cast<double>(part));
}

Section reduction_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "stage", "textbook", "measured", "with whole units", "all that is booked"});
  for (const Row& row : rows) {
    const int stage = row.entry.kind->stage;
    const Row* whole = whole_row(rows, row);
    if (stage == 0 || !row.entry.kind->ring || whole == nullptr) continue;
    const ModelStates reference = model_states(*whole);
    const ModelStates own = model_states(row);
    const std::optional<std::size_t> owners = row.entry.job.shard_owners();
    table.add({row.entry.label, std::to_string(stage),
               stage == 1   ? "4 ×"
               : stage == 2 ? "8 ×"
               : owners     ? fmt::format("n = {} ×", *owners)
                            : "n ×",
               times(reference.kept, own.kept), times(reference.whole, own.whole),
               times(whole->runs.front().worker_peak_bytes, row.runs.front().worker_peak_bytes)});
  }
  return {
      "Memory of a worker that keeps everything (ddp), divided by this row's. Textbook: Adam in mixed precision, in "
      "stages 1 and 2 for many workers",
      std::move(table)};
}

Section staleness_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "worker", "mean", "most", "median", "p90", "most lag", "too late"});
  for (const Row& row : rows) {
    const std::vector<StalenessSummary>& workers = row.runs.front().staleness;
    for (std::size_t w = 0; w < workers.size(); ++w)
      table.add({row.entry.label, std::to_string(w), number(workers[w].mean(), 2), std::to_string(workers[w].most),
                 std::to_string(workers[w].quantile(0.5)), std::to_string(workers[w].quantile(0.9)),
                 std::to_string(workers[w].most_lag), percent(workers[w].dropped_share())});
  }
  return {
      "Staleness: updates by other workers between the values of a gradient and its own update; lag: steps ahead of "
      "the slowest worker; too late: share of the worker's gradients that were not used",
      std::move(table)};
}

}  // namespace

std::vector<Section> wide_sections(const std::vector<Row>& rows) {
  std::vector<Section> sections;
  for (auto make : {speed_section, bytes_section, memory_section, system_section, reduction_section, staleness_section})
    if (Section section = make(rows); !section.table.empty()) sections.push_back(std::move(section));
  return sections;
}

}  // namespace psring::cli
