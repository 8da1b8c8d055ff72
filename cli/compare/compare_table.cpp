#include <algorithm>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <psring/cli/compare/compare_table.h>
#include <psring/cli/compare/table_cells.h>
#include <psring/cli/train/summary_text.h>

namespace psring::cli {
namespace {

std::string staleness_line(const std::vector<StalenessSummary>& workers) {
  StalenessSummary all;
  for (const StalenessSummary& worker : workers) all.merge(worker);
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
    const bool depends = job.consistency != "bsp" || job.row_consistency() != "bsp" || job.backup_workers > 0;
    timing = timing || depends;
    compressed = compressed || (!depends && job.compress != "none");
    own = own || (!depends && job.compress == "none");
  }
  std::string text;
  if (timing) text += "inexact: the result depends on timing (which worker's gradient comes first).\n";
  if (compressed) text += "inexact with --compress: repeatable, but compressed gradients are not the exact ones.\n";
  if (own) text += "inexact: the strategy gives no bitwise guarantee.\n";
  return text;
}

/// The title of a predicted column: links tell two of them apart.
std::string predicted_title(const std::vector<PredictedStep>& all, const PredictedStep& step) {
  return all.size() == 1 ? "cluster" : step.link;
}

std::string predicted_legend(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::string text;
  const std::vector<PredictedStep>& all = rows.front().predicted;
  const auto has_links = [](const Row& row) { return !row.entry.kind->one_worker; };
  const auto with_links = std::ranges::count_if(rows, has_links);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto encrypted =
        std::ranges::count_if(rows, [&](const Row& row) { return has_links(row) && row.predicted[i].encrypted; });
    const char* how = encrypted == 0 ? "" : encrypted == with_links ? ", encrypted" : ", encrypted if the row says so";
    text += wrapped(fmt::format("{}: step on a cluster in ms, predicted: one process a host, links of {}{}.",
                                predicted_title(all, all[i]), all[i].link, how),
                    kTableColumns, 0);
  }
  if (all.empty()) return text;
  text += wrapped(
      "The prediction takes computing, updates and messages as this machine measured them alone, before the runs, "
      "whose load is not in it. All other figures were measured here, in the runs.",
      kTableColumns, 0);
  if (const std::string& disturbed = all.front().disturbed; !disturbed.empty())
    text += wrapped(fmt::format("While they were measured, {}, so that predicted steps may be too long.", disturbed),
                    kTableColumns, 0);
  std::map<std::string, std::vector<std::string>> missing;  // by reason
  for (const Row& row : rows)
    if (!row.predicted.front().step_s) missing[row.predicted.front().reason].push_back(row.entry.label);
  for (const auto& [reason, labels] : missing)
    text += wrapped(fmt::format("no prediction of {}: {}", fmt::join(labels, ", "), reason), kTableColumns, 2);
  return text;
}

}  // namespace

TextTable main_table(const std::vector<Row>& rows) {
  const bool several = several_runs(rows);
  const ModelColumns columns = model_columns(rows);
  std::vector<std::string> names{"strategy"};
  if (!rows.empty())
    for (const PredictedStep& step : rows.front().predicted)
      names.push_back(predicted_title(rows.front().predicted, step));
  const std::size_t predicted = names.size() - 1;
  names.insert(names.end(), {std::string(columns.rate_name), "ms/step"});
  if (several) names.emplace_back("spread");
  for (const std::string_view name :
       {std::string_view("exposed"), std::string_view("bytes/step"), std::string_view("peak MiB"),
        std::string_view("equal"), columns.result_name(), std::string_view("bound by")})
    names.emplace_back(name);
  TextTable table(names);
  for (const Row& row : rows) {
    const Summary& first = row.runs.front();
    const Spread step = row.spread(&Summary::step_seconds);
    std::vector<std::string> cells{row.entry.label};
    for (const PredictedStep& at : row.predicted) cells.push_back(at.step_s ? number(*at.step_s * 1e3, 2) : kNothing);
    cells.push_back(time_cell(row, number(row.spread(columns.rate).median, 0)));
    cells.push_back(time_cell(row, number(step.median * 1e3, 3)));
    if (several) cells.push_back(row.runs.size() > 1 ? percent(step.relative()) : kNothing);
    for (std::string& cell :
         std::vector<std::string>{time_cell(row, number(row.spread(&Summary::exposed_seconds).median * 1e3, 3)),
                                  marked(count(moved_bytes(row, kWorkers)), bytes_ok(row, kWorkers)),
                                  memory_cell(row, kWorkers, &Summary::worker_peak_bytes), to_string(row.equality),
                                  columns.result_cell(first), std::string(to_string(bound_of(row.step())))})
      cells.push_back(std::move(cell));
    table.add(std::move(cells));
    if (row.entry.job.servers == 0) continue;
    cells.assign(3 + predicted, "");
    cells.front() = "  servers";
    if (several) cells.emplace_back();
    cells.emplace_back();
    cells.push_back(marked(count(moved_bytes(row, kServers)), bytes_ok(row, kServers)));
    cells.push_back(memory_cell(row, kServers, &Summary::server_peak_bytes));
    table.add(std::move(cells));
  }
  return table;
}

std::string legend(const std::vector<Row>& rows) {
  const ModelColumns columns = model_columns(rows);
  const bool text_model = columns.rate == &Summary::tokens_per_second;
  std::string text = predicted_legend(rows);
  text += text_model
              ? "tokens/s: training tokens a second, all workers together, over the time of their steps; start-up,\n"
              : "samples/s: training samples a second, all workers together, over the time of their steps; start-up,\n";
  text +=
      "evaluations and checkpoints do not count. ms/step: median step of the slowest worker.\n"
      "exposed: ms per step that the most-delayed worker only waits for communication, median over steps.\n"
      "bytes/step: payload sent and received by the worker that moves most, and by all servers together.\n"
      "peak: booked memory of the largest worker, the largest server. ✓ as the formulas predict, ✗ not,\n"
      "— if a part has no formula.\n"
      "equal: = the final parameters are bitwise identical to those of single --virtual-workers n, ≈ its\n"
      "arithmetic in another order.\n";
  if (columns.result == ModelColumns::Result::perplexity)
    text += "ppl: perplexity of the test split, e to the mean loss of a token; lower is better.\n";
  if (columns.result == ModelColumns::Result::own)
    text += fmt::format("{}: the model's own metric over the test samples.\n", columns.metric);
  text += inexact_legend(rows);
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !not_comparable(row.step()).empty(); }))
    text += "*: not comparable, as processes had to share processors; the lines below say with what.\n";
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.entry.job.colocated_servers() > 0; }))
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
    if (const auto& pipeline = first.pipeline)
      lines.back() += fmt::format("; stages are idle for {:.1f} % of a step, predicted {:.1f}", 100 * pipeline->bubble,
                                  100 * pipeline->predicted);
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
      const std::string run_name =
          row.runs.size() > 1 ? fmt::format("{}, run {}", row.entry.label, r + 1) : row.entry.label;
      for (const ByteCheck& check : row.runs[r].bytes)
        if (!check.ok())
          lines.push_back(fmt::format("✗ {}: {} {}: {} bytes in the run, predicted {} ({})", run_name, check.role,
                                      check.direction, check.measured, *check.predicted,
                                      signed_difference(check.measured, *check.predicted)));
      for (const MemoryCheck& check : row.runs[r].memory)
        if (!check.ok())
          lines.push_back(fmt::format("✗ {}: {} booked {} bytes for {}, predicted {} ({})", run_name, check.role,
                                      check.peak, check.category, *check.predicted,
                                      signed_difference(check.peak, *check.predicted)));
    }
    if (row.equality == Equality::differs)
      lines.push_back(fmt::format("✗ {}: final parameters are not those of single --virtual-workers {}: {:.2g} apart",
                                  row.entry.label, row.entry.job.data_workers(), row.largest_difference.value_or(0)));
  }
  return lines;
}

}  // namespace psring::cli
