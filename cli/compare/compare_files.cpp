#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <psring/cli/compare/compare_files.h>
#include <psring/cli/compare/compare_sections.h>
#include <psring/cli/compare/compare_table.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/view/folders.h>

namespace psring::cli {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// Returns null for NaN and infinity, which JSON cannot represent.
Json finite(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }

Json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}};
}

Json difference(std::uint64_t measured, const std::optional<std::uint64_t>& predicted) {
  if (!predicted) return {};
  return static_cast<std::int64_t>(measured) - static_cast<std::int64_t>(*predicted);
}

Json system_of(const std::map<std::string, std::uint64_t>& by_process, const std::string& process) {
  const auto found = by_process.find(process);
  return found == by_process.end() ? Json() : Json(found->second);
}

Json to_json(const Summary& run) {
  Json json = {{"samples_per_second", run.samples_per_second},
               {"step_s", {{"median", run.step_seconds}, {"p10", run.step_p10_seconds}, {"p90", run.step_p90_seconds}}},
               {"exposed_comm_s", {{"median", run.exposed_seconds}, {"mean", run.mean_exposed_seconds}}},
               {"predicted_exposed_comm_s", or_null(run.predicted_exposed_seconds)},
               {"final_loss", run.final_loss},
               {"test_loss", or_null(run.test_loss)},
               {"test_accuracy", or_null(run.test_accuracy)}};
  if (run.reads_text()) {
    json["tokens_per_second"] = run.tokens_per_second;
    json["test_perplexity"] = finite(run.test_perplexity());
  }
  for (const auto& [name, mean] : run.test_own) json["own"]["test_" + name] = mean;
  for (const ByteCheck& check : run.bytes)
    json["bytes"].push_back({{"process", check.role},
                             {"direction", check.direction},
                             {"measured", check.measured},
                             {"predicted", or_null(check.predicted)},
                             {"difference", difference(check.measured, check.predicted)}});
  for (const MemoryCheck& check : run.memory)
    json["memory"].push_back({{"process", check.role},
                              {"category", check.category},
                              {"peak", check.peak},
                              {"predicted", or_null(check.predicted)},
                              {"difference", difference(check.peak, check.predicted)}});
  json["rss_peak"] = run.system_memory.rss;
  json["pss_peak"] = run.system_memory.pss;
  json["pss_together_peak"] = or_null(run.system_memory.pss_together);
  return json;
}

Json to_json(const PredictedStep& step) {
  Json json = {{"link", step.link}, {"encrypted", step.encrypted}, {"step_s", or_null(step.step_s)}};
  if (!step.step_s) {
    json["reason"] = step.reason;
    return json;
  }
  json["compute_s"] = step.compute_s;
  json["exposed_comm_s"] = step.exposed_s;
  json["bound_by"] = step.bound;
  json["not_comparable"] = step.disturbed;
  return json;
}

Json to_json(const Row& row) {
  const StepFigures step = row.step();
  Json json = {{"strategy", row.entry.label},
               {"job", Json::parse(psring::to_json(row.entry.job))},
               {"steps", row.runs.front().steps},
               {"samples_per_second", to_json(row.spread(&Summary::samples_per_second))},
               {"step_s", to_json(row.spread(&Summary::step_seconds))},
               {"exposed_comm_s", to_json(row.spread(&Summary::exposed_seconds))},
               {"equality", to_string(row.equality)},
               {"largest_difference", finite(row.largest_difference)},
               {"ok", row.ok()},
               {"figures",
                {{"memory_bytes", step.memory_bytes},
                 {"memory_bytes_per_s", or_null(step.memory_bytes_per_s)},
                 {"worker_link_bytes", step.worker_bytes},
                 {"server_link_bytes", step.server_bytes},
                 {"link_bytes_per_s", or_null(step.link_bytes_per_s)},
                 {"threads", step.threads},
                 {"processors", step.processors},
                 {"processors_of_others", or_null(step.others)},
                 {"run_delay", or_null(step.run_delay)},
                 {"slowest_worker", step.slowest},
                 {"slowest_busy_s", step.slowest_busy_s},
                 {"others_busy_s", step.others_busy_s},
                 {"server_busy_s", or_null(step.server_busy_s)},
                 {"processors_used", or_null(step.processors_used)}}}};
  const Json bound = bound_json(row);
  for (const auto& [name, value] : bound.items()) json[name] = value;
  for (const Floor& floor : floors_of(step)) json["floors"][std::string(to_string(floor.bound))] = floor.seconds;
  json["predicted"] = Json::array();
  for (const PredictedStep& at : row.predicted) json["predicted"].push_back(to_json(at));
  for (const Summary& run : row.runs) json["runs"].push_back(to_json(run));
  return json;
}

std::string csv_of(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Writes objects with the same members as lines, below a line of the names.
std::string csv(const std::vector<Json>& objects) {
  std::string text;
  for (const Json& object : objects) {
    std::vector<std::string> names;
    std::vector<std::string> values;
    for (const auto& [name, value] : object.items()) {
      names.push_back(name);
      values.push_back(csv_of(value));
    }
    if (text.empty()) text = csv_line(names);
    text += csv_line(values);
  }
  return text;
}

/// Returns null for models that do not read text.
Json tokens_per_second(const Row& row) {
  return row.runs.front().reads_text() ? Json(row.spread(&Summary::tokens_per_second).median) : Json();
}

std::string table_csv(const std::vector<Row>& rows) {
  std::set<std::string> metrics;  // of the models themselves
  for (const Row& row : rows)
    for (const auto& [name, mean] : row.runs.front().test_own) metrics.insert(name);
  std::vector<Json> lines;
  for (const Row& row : rows) {
    const Summary& first = row.runs.front();
    const Spread step = row.spread(&Summary::step_seconds);
    lines.push_back({{"strategy", row.entry.label},
                     {"role", "workers"},
                     {"runs", row.runs.size()},
                     {"samples_per_second", row.spread(&Summary::samples_per_second).median},
                     {"step_s", step.median},
                     {"step_s_least", step.least},
                     {"step_s_most", step.most},
                     {"exposed_comm_s", row.spread(&Summary::exposed_seconds).median},
                     {"bytes_per_step", or_null(moved_bytes(row, kWorkers))},
                     {"bytes_ok", or_null(bytes_ok(row, kWorkers))},
                     {"peak_bytes", first.worker_peak_bytes},
                     {"memory_ok", or_null(memory_ok(row, kWorkers))},
                     {"equality", to_string(row.equality)},
                     {"largest_difference", finite(row.largest_difference)},
                     {"final_loss", first.final_loss},
                     {"test_loss", or_null(first.test_loss)},
                     {"test_accuracy", or_null(first.test_accuracy)},
                     {"tokens_per_second", tokens_per_second(row)},
                     {"test_perplexity", finite(first.test_perplexity())},
                     {"bound_by", to_string(bound_of(row.step()))},
                     {"not_comparable", not_comparable(row.step())}});
    for (std::size_t i = 0; i < row.predicted.size(); ++i) {
      const std::string number = i == 0 ? "" : fmt::format("_{}", i + 1);
      lines.back()["predicted_link" + number] = row.predicted[i].link;
      lines.back()["predicted_step_s" + number] = or_null(row.predicted[i].step_s);
    }
    for (const std::string& name : metrics) {
      const auto mean = first.test_own.find(name);
      if (!lines.back().contains("test_" + name))
        lines.back()["test_" + name] = mean == first.test_own.end() ? Json() : Json(mean->second);
    }
    if (row.entry.job.servers == 0) continue;
    Json servers = lines.back();
    for (const auto& [name, value] : servers.items())
      if (name != "strategy") value = Json();
    servers["role"] = "servers";
    servers["runs"] = row.runs.size();
    servers["bytes_per_step"] = or_null(moved_bytes(row, kServers));
    servers["bytes_ok"] = or_null(bytes_ok(row, kServers));
    servers["peak_bytes"] = first.server_peak_bytes;
    servers["memory_ok"] = or_null(memory_ok(row, kServers));
    lines.push_back(std::move(servers));
  }
  return csv(lines);
}

std::string memory_csv(const std::vector<Row>& rows) {
  std::vector<Json> lines;
  for (const Row& row : rows)
    for (std::size_t r = 0; r < row.runs.size(); ++r)
      for (const MemoryCheck& check : row.runs[r].memory)
        lines.push_back({{"strategy", row.entry.label},
                         {"run", r + 1},
                         {"process", check.role},
                         {"category", check.category},
                         {"peak", check.peak},
                         {"predicted", or_null(check.predicted)},
                         {"difference", difference(check.peak, check.predicted)},
                         {"rss_peak", system_of(row.runs[r].system_memory.rss, check.role)},
                         {"pss_peak", system_of(row.runs[r].system_memory.pss, check.role)}});
  return csv(lines);
}

std::string markdown(const std::vector<Row>& rows) {
  std::string text = "# psring compare\n\n" + main_table(rows).markdown() + "\n" + legend(rows) + "\n";
  for (const std::string& line : failures(rows)) text += "- " + line + "\n";
  text += "\n## What bounds each\n\nTimes of a step are medians.\n\n";
  for (const std::string& line : bound_lines(rows)) text += "- " + line + "\n";
  for (const Section& section : wide_sections(rows))
    text += "\n## " + section.title + "\n\n" + section.table.markdown();
  return text;
}

}  // namespace

void write_comparison(const std::filesystem::path& folder, const std::vector<std::string>& command,
                      const std::vector<Row>& rows, bool ended) {
  Json json = {{"command", command}, {"ended", ended}, {"rows", Json::array()}};
  for (const Row& row : rows) json["rows"].push_back(to_json(row));
  write_whole(folder / "compare.json", json.dump(2) + "\n");
  write_whole(folder / "table.csv", table_csv(rows));
  write_whole(folder / "memory.csv", memory_csv(rows));
  write_whole(folder / "compare.md", markdown(rows));
}

bool is_unfinished_comparison(const std::filesystem::path& folder) {
  const std::optional<Json> json = Json::try_parse(read_whole_if_present(folder / "compare.json").value_or(""));
  return json && json->is_object() && !json->value("ended", true);
}

std::filesystem::path run_folder_of(const std::string& label, std::size_t run, std::size_t runs) {
  const std::string name = view::folder_name(label);
  return runs == 1 ? std::filesystem::path(name) : std::filesystem::path(name) / fmt::format("run-{}", run + 1);
}

void write_metrics_csv(const std::filesystem::path& folder, const std::vector<Row>& rows, std::size_t runs) {
  static constexpr const char* kColumns[] = {"worker",         "step",      "epoch",          "time_s",
                                             "loss",           "lr",        "samples",        "step_s",
                                             "compute_s",      "comm_s",    "exposed_comm_s", "bytes_sent",
                                             "bytes_received", "staleness", "test_loss",      "test_accuracy"};
  std::ofstream out(folder / "compare.csv");
  std::vector<std::string> cells{"strategy", "run"};
  cells.insert(cells.end(), std::begin(kColumns), std::end(kColumns));
  std::set<std::string> own;  // metrics of the model itself
  for (const Row& row : rows)
    for (const Summary& run : row.runs)
      for (const auto& [name, mean] : run.test_own) own.insert("test_" + name);
  cells.insert(cells.end(), own.begin(), own.end());
  out << csv_line(cells);
  for (const Row& row : rows)
    for (std::size_t r = 0; r < row.runs.size(); ++r) {
      const auto file = folder / run_folder_of(row.entry.label, r, runs) / "metrics.jsonl";
      LineReader lines(file.string(), LineReader::IfMissing::no_lines);
      for (std::string line; lines.next(line);) {
        const std::optional<Json> json = Json::try_parse(line);
        if (!json) fail(ErrorKind::data, "{}: a line is not JSON", file.string());
        cells = {row.entry.label, std::to_string(r + 1)};
        const auto cell = [&](const Json& in, const std::string& column) {
          cells.push_back(in.contains(column) ? csv_of(in.at(column)) : "");
        };
        for (const char* column : kColumns) cell(*json, column);
        for (const std::string& column : own) cell(json->contains("own") ? json->at("own") : Json::object(), column);
        out << csv_line(cells);
      }
    }
  flush(out, (folder / "compare.csv").string());
}

}  // namespace psring::cli
