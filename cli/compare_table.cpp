#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <psring/cli/compare_table.h>

namespace psring::cli {
namespace {

constexpr double kMiB = 1048576.0;

/// A figure in at most seven columns: as many decimals as asked for, fewer where it is large.
std::string number(double value, int decimals) {
  if (!std::isfinite(value)) return kNothing;
  for (; decimals >= 0; --decimals)
    if (std::string text = fmt::format("{:.{}f}", value, decimals); text.size() <= 7) return text;
  return fmt::format("{:.1e}", value);
}

std::string number(const std::optional<double>& value, int decimals) {
  return value ? number(*value, decimals) : kNothing;
}

/// Exact up to ten digits.
std::string count(std::optional<std::uint64_t> bytes) {
  if (!bytes) return kNothing;
  return *bytes < 10'000'000'000 ? std::to_string(*bytes) : fmt::format("{:.4g} G", static_cast<double>(*bytes) / 1e9);
}

std::string marked(std::string figure, const std::optional<bool>& ok) {
  return std::move(figure) + (!ok ? " —" : *ok ? " ✓" : " ✗");
}

std::string signed_difference(std::uint64_t measured, std::uint64_t predicted) {
  return measured >= predicted ? fmt::format("+{}", measured - predicted) : fmt::format("-{}", predicted - measured);
}

std::string percent(double share) { return number(100 * share, 1) + " %"; }

bool several_runs(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.runs.size() > 1; });
}

bool has_accuracy(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const Row& row) { return row.runs.front().test_accuracy.has_value(); });
}

std::uint64_t most_booked(const Row& row, std::uint64_t Summary::*figure) {
  std::uint64_t most = 0;
  for (const Summary& run : row.runs) most = std::max(most, run.*figure);
  return most;
}

std::string memory_cell(const Row& row, std::string_view role, std::uint64_t Summary::*figure) {
  return marked(number(static_cast<double>(most_booked(row, figure)) / kMiB, 1), memory_ok(row, role));
}

/// A time, with a star where it cannot be compared with the times of other runs.
std::string time_cell(const Row& row, std::string figure) {
  return std::move(figure) + (not_comparable(row.step()).empty() ? "" : "*");
}

Section speed_section(const std::vector<Row>& rows) {
  TextTable table({"strategy", "runs", "samples/s", "least", "most", "ms/step", "least", "most", "spread", "p10", "p90",
                   "exposed", "loss", "test loss", "accuracy", "equal", "largest difference"});
  for (const Row& row : rows) {
    const Summary& first = row.runs.front();
    const Spread samples = row.of(&Summary::samples_per_second);
    const Spread step = row.of(&Summary::step_seconds);
    table.add({row.entry.label, std::to_string(row.runs.size()), time_cell(row, number(samples.median, 0)),
               number(samples.least, 0), number(samples.most, 0), time_cell(row, number(1e3 * step.median, 3)),
               number(1e3 * step.least, 3), number(1e3 * step.most, 3),
               row.runs.size() > 1 ? percent(step.relative()) : kNothing,
               number(1e3 * row.of(&Summary::step_p10_seconds).median, 3),
               number(1e3 * row.of(&Summary::step_p90_seconds).median, 3),
               number(1e3 * row.of(&Summary::exposed_seconds).median, 3), number(first.final_loss, 4),
               number(first.test_loss, 4), number(first.test_accuracy, 4), to_string(row.equality),
               row.largest_difference ? fmt::format("{:.2g}", *row.largest_difference) : kNothing});
  }
  return {"Speed: medians over runs, with the least and the most; p10, p90: of a run's steps", std::move(table)};
}

/// "worker 0", or of processes that agree in all that is shown "2 workers": cells by process, from the second on.
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

/// Measured, predicted, and how they differ.
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
  return {"Payload bytes of a step; of servers all together", std::move(table)};
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
  return {"Memory that each process books: bytes at the peak of each category that has any", std::move(table)};
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
  return {"Memory that the operating system counts, at its peak; Pss: a page that n processes share is 1/n in each",
          std::move(table)};
}

/// Of the largest worker: what ZeRO cuts, and with it the whole units that it holds for a while.
struct ModelStates {
  std::uint64_t kept = 0;   ///< parameters, gradients, optimizer
  std::uint64_t whole = 0;  ///< and communication
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

/// The row whose workers keep all, to which another is to be compared: as many workers, the same model and rule.
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
    const ModelStates of_whole = model_states(*whole);
    const ModelStates own = model_states(row);
    const std::optional<std::size_t> owners = row.entry.job.shard_owners();
    table.add({row.entry.label, std::to_string(stage),
               stage == 1   ? "4 ×"
               : stage == 2 ? "8 ×"
               : owners     ? fmt::format("n = {} ×", *owners)
                            : "n ×",
               times(of_whole.kept, own.kept), times(of_whole.whole, own.whole),
               times(whole->runs.front().worker_peak_bytes, row.runs.front().worker_peak_bytes)});
  }
  return {
      "Memory of a worker that keeps all (ddp) over this one's. Textbook: Adam in mixed precision, for large n in "
      "stages 1 and 2",
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
      "Staleness: others' updates between a gradient's values and its own; lag: steps ahead of the slowest worker; too "
      "late: of its gradients, not used",
      std::move(table)};
}

std::string staleness_line(const std::vector<StalenessSummary>& workers) {
  StalenessSummary all;
  for (const StalenessSummary& worker : workers) all.add(worker);
  std::string text = fmt::format("; staleness {:.2f}, at most {}; lag at most {}", all.mean(), all.most, all.most_lag);
  if (all.dropped > 0) text = fmt::format("; {} of the gradients came too late", percent(all.dropped_share()));
  return text;
}

std::string inexact_legend(const std::vector<Row>& rows) {
  bool timing = false;
  bool compressed = false;
  bool own = false;
  for (const Row& row : rows) {
    if (row.equality != Equality::inexact) continue;
    const JobOptions& job = row.entry.job;
    const bool depends = job.consistency != "bsp" || job.backup_workers > 0;
    timing = timing || depends;
    compressed = compressed || (!depends && job.compress != "none");
    own = own || (!depends && job.compress == "none");
  }
  std::string text;
  if (timing) text += "inexact: the result depends on timing (which worker's gradient comes first).\n";
  if (compressed) text += "inexact with --compress: repeatable, but compressed gradients are not the exact ones.\n";
  if (own) text += "inexact: the strategy does not promise the bits of single.\n";
  return text;
}

}  // namespace

TextTable main_table(const std::vector<Row>& rows) {
  const bool several = several_runs(rows);
  const bool accuracy = has_accuracy(rows);
  std::vector<std::string> columns{"strategy", "samples/s", "ms/step"};
  if (several) columns.emplace_back("spread");
  for (const char* name : {"exposed", "bytes/step", "peak MiB", "equal", accuracy ? "acc" : "loss", "bound by"})
    columns.emplace_back(name);
  TextTable table(columns);
  for (const Row& row : rows) {
    const Summary& first = row.runs.front();
    const Spread step = row.of(&Summary::step_seconds);
    std::vector<std::string> cells{row.entry.label,
                                   time_cell(row, number(row.of(&Summary::samples_per_second).median, 0)),
                                   time_cell(row, number(step.median * 1e3, 3))};
    if (several) cells.push_back(row.runs.size() > 1 ? percent(step.relative()) : kNothing);
    for (std::string& cell :
         std::vector<std::string>{time_cell(row, number(row.of(&Summary::exposed_seconds).median * 1e3, 3)),
                                  marked(count(moved_bytes(row, kWorkers)), bytes_ok(row, kWorkers)),
                                  memory_cell(row, kWorkers, &Summary::worker_peak_bytes), to_string(row.equality),
                                  accuracy ? number(first.test_accuracy, 4) : number(first.final_loss, 4),
                                  std::string(to_string(bound_of(row.step())))})
      cells.push_back(std::move(cell));
    table.add(std::move(cells));
    if (row.entry.job.servers == 0) continue;
    cells = {"  servers", "", ""};
    if (several) cells.emplace_back();
    cells.emplace_back();
    cells.push_back(marked(count(moved_bytes(row, kServers)), bytes_ok(row, kServers)));
    cells.push_back(memory_cell(row, kServers, &Summary::server_peak_bytes));
    table.add(std::move(cells));
  }
  return table;
}

std::string legend(const std::vector<Row>& rows) {
  std::string text =
      "samples/s: training samples a second, all workers together, over the time of their steps; start-up,\n"
      "evaluations and checkpoints do not count. ms/step: median step of the slowest worker.\n"
      "exposed: ms of a step that the worker which waits most waits for communication, median over steps.\n"
      "bytes/step: payload sent and received by the worker that moves most, and by all servers together.\n"
      "peak: booked memory of the largest worker, the largest server. ✓ as the formulas predict, ✗ not.\n"
      "equal: = the final parameters have the bits of single --virtual-workers n, ≈ its arithmetic in\n"
      "another order.\n" +
      inexact_legend(rows);
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !not_comparable(row.step()).empty(); }))
    text += "*: not comparable, as processes had to share processors; the lines below say with what.\n";
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.entry.job.placement == "colocated"; }))
    text += "Where servers live in workers' processes, a worker's row counts both.\n";
  if (several_runs(rows)) text += "Medians over runs; spread: of ms/step, (most − least) / median.\n";
  return text;
}

std::vector<std::string> bound_lines(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    const StepFigures step = row.step();
    const Bound bound = bound_of(step);
    lines.push_back(
        fmt::format("{}: {} → {}", row.entry.label, because(bound, step), advice(bound, step, row.choices())));
    const Summary& first = row.runs.front();
    if (first.predicted_exposed_seconds)
      lines.back() += fmt::format("; exposed on average {:.1f} ms, predicted {:.1f}", first.mean_exposed_seconds * 1e3,
                                  *first.predicted_exposed_seconds * 1e3);
    if (!first.staleness.empty()) lines.back() += staleness_line(first.staleness);
    if (const std::string reason = not_comparable(step); !reason.empty())
      lines.back() += fmt::format("; times are not comparable: {}", reason);
  }
  return lines;
}

std::vector<std::string> failures(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    if (const Summary& run = row.runs.front(); run.skipped_steps > 0)
      lines.push_back(fmt::format("{}: {}", row.entry.label, skipped_line(run)));
    if (const Summary& run = row.runs.front(); run.losses > 0)
      lines.push_back(fmt::format("{}: {}", row.entry.label, losses_line(run)));
    if (row.runs.front().mixed_processors())
      lines.push_back(
          fmt::format("{}: workers had different processors, so equal bits are not promised", row.entry.label));
    for (std::size_t r = 0; r < row.runs.size(); ++r) {
      const std::string who = row.runs.size() > 1 ? fmt::format("{}, run {}", row.entry.label, r + 1) : row.entry.label;
      for (const ByteCheck& check : row.runs[r].bytes)
        if (!check.ok())
          lines.push_back(fmt::format("✗ {}: {} {}: {} bytes in the run, predicted {} ({})", who, check.role,
                                      check.direction, check.measured, *check.predicted,
                                      signed_difference(check.measured, *check.predicted)));
      for (const MemoryCheck& check : row.runs[r].memory)
        if (!check.ok())
          lines.push_back(fmt::format("✗ {}: {} booked {} bytes for {}, predicted {} ({})", who, check.role, check.peak,
                                      check.category, *check.predicted,
                                      signed_difference(check.peak, *check.predicted)));
    }
    if (row.equality == Equality::differs)
      lines.push_back(fmt::format("✗ {}: final parameters are not those of single --virtual-workers {}: {:.2g} apart",
                                  row.entry.label, row.entry.job.workers, row.largest_difference.value_or(0)));
  }
  return lines;
}

std::vector<Section> wide_sections(const std::vector<Row>& rows) {
  std::vector<Section> sections;
  for (auto make : {speed_section, bytes_section, memory_section, system_section, reduction_section, staleness_section})
    if (Section section = make(rows); !section.table.empty()) sections.push_back(std::move(section));
  return sections;
}

}  // namespace psring::cli
