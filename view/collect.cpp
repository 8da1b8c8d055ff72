#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/view/collect.h>
#include <psring/view/folders.h>
#include <psring/view/ownership.h>
#include <psring/view/records.h>
#include <psring/view/report_parts.h>
#include <psring/view/series.h>
#include <psring/view/trace_events.h>

namespace psring::view {
namespace {

namespace fs = std::filesystem;

using FormulasOf = std::function<Json(const Json& job)>;

constexpr std::size_t kMostProcessesOfTraffic = 24;  ///< a matrix of more does not fit a page
constexpr std::size_t kMostHotRows = 16;             ///< of a table

/// Calls `read`, and says of which file it is that it lacks what psring writes.
template <class Read>
auto reading(const fs::path& file, Read read) {
  try {
    return read();
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: is not what psring writes ({})", file.string(), error.what());
  }
}

Json manifest_of(const Json& run) {
  Json manifest;
  for (const char* name : {"version", "commit", "command", "seed", "hosts", "processors", "mixed_processors", "link",
                           "other_programs", "job"})
    if (run.contains(name)) manifest[name] = run[name];
  run.at("job").at("strategy").get<std::string>();
  return manifest;
}

/// Returns the times of each worker, as the workers reported them.
Json workers_of(const Json& roles) {
  Json workers = Json::array();
  for (const auto& [process, report] : roles.items()) {
    if (!process.starts_with("worker ")) continue;
    Json worker = {{"process", process}};
    for (const char* name :
         {"steps", "step_s", "exposed_step_s", "busy_step_s", "exposed_comm_s", "run_delay", "bubble"})
      if (report.contains(name)) worker[name] = report[name];
    if (report.contains("predicted") && report["predicted"].contains("exposed_comm_s"))
      worker["predicted_exposed_comm_s"] = report["predicted"]["exposed_comm_s"];
    workers.push_back(std::move(worker));
  }
  return workers;
}

/// Returns for each table {name, fused, owners: [{process, rows, updates, busy_s}], workers: [{process, batches,
/// lookups, keys, most_keys}], hot: [{key, updates, process}]}; null if the run has none. `busy_s` is null of a worker,
/// `fused` of a table of a user's program.
Json tables_of(const Json& roles) {
  std::map<std::string, std::vector<std::pair<std::string, const Json*>>> reports;  // by table
  for (const auto& [process, report] : roles.items())
    if (report.contains("tables"))
      for (const Json& table : report["tables"])
        reports[table.at("name").get<std::string>()].emplace_back(process, &table);
  Json tables;
  for (const auto& [name, own] : reports) {
    Json owners = Json::array();
    Json workers = Json::array();
    Json fused;
    std::vector<Json> hot;
    for (const auto& [process, table] : own) {
      if (table->contains("fused")) fused = table->at("fused");
      Json figures = {{"process", process}};
      if (table->contains("batches")) {
        for (const char* figure : {"batches", "lookups", "keys", "most_keys"}) figures[figure] = table->at(figure);
        workers.push_back(std::move(figures));
      }
      if (!table->contains("rows")) continue;
      owners.push_back({{"process", process},
                        {"rows", table->at("rows")},
                        {"updates", table->at("updates")},
                        {"busy_s", roles[process].value("busy_s", Json())}});
      for (Json row : table->at("hot")) {
        row["process"] = process;
        hot.push_back(std::move(row));
      }
    }
    // Smaller keys come first among those of as many updates, whoever owns them.
    std::ranges::sort(hot, {}, [](const Json& row) {
      return std::pair(~row["updates"].get<std::uint64_t>(), row["key"].get<std::string>());
    });
    if (hot.size() > kMostHotRows) hot.resize(kMostHotRows);
    tables.push_back({{"name", name},
                      {"fused", std::move(fused)},
                      {"owners", std::move(owners)},
                      {"workers", std::move(workers)},
                      {"hot", std::move(hot)}});
  }
  return tables;
}

/// Returns lines of [from, to, operation, payload bytes, framing bytes].
Json traffic_of(const Json& roles) {
  if (roles.size() > kMostProcessesOfTraffic) return {};
  Json lines = Json::array();
  for (const auto& [process, report] : roles.items()) {
    const Json bytes = report.value("bytes", Json::object());  // absent of a process that is alone
    const Json sent = bytes.value("sent", Json::object());
    for (const auto& [operation, peers] : sent.items())
      for (const auto& [peer, count] : peers.items())
        lines.push_back({process, peer, operation, count.at("payload"), count.at("framing")});
  }
  return lines;
}

/// Returns [process, peer, frames, bytes] of frames that were sent again.
Json retransmitted_of(const Json& roles) {
  Json lines = Json::array();
  for (const auto& [process, report] : roles.items()) {
    const Json sent = report.value("bytes", Json::object()).value("sent", Json::object());
    const Json peers = sent.value("retransmitted", Json::object());
    for (const auto& [peer, count] : peers.items())
      lines.push_back({process, peer, count.at("messages"), count.at("framing")});
  }
  return lines;
}

/// Returns the formula of each number of bytes, where it gives the prediction of the run.
Json formulas_of(const Json& summary, const Json& roles, const Json& formulas) {
  Json list = Json::array();
  for (const Json& check : summary.value("bytes", Json::array())) {
    list.push_back(nullptr);
    const auto role = check.at("role").get<std::string>();
    const std::string group = role.starts_with("worker") ? "worker" : role;
    const auto direction = check.at("direction").get<std::string>();
    if (!formulas.contains(group) || !formulas[group].contains(direction) || !check.contains("predicted")) continue;
    const Json& figure = formulas[group][direction];
    const Json& steps = roles.contains(role) ? roles[role].at("steps") : summary.at("steps");
    const auto bytes = figure.at("bytes").get<std::uint64_t>();
    if (bytes * steps.get<std::uint64_t>() != check["predicted"].get<std::uint64_t>()) continue;
    list.back() = {{"text", figure.at("text")}, {"values", formulas.at("values")}, {"a_step", bytes}, {"steps", steps}};
  }
  return list;
}

Json recoveries_of(const fs::path& file) {
  Json lines = Json::array();
  for_each_line(file, [&](const Json& line) { lines.push_back(line); });
  return lines;
}

/// `name` is how the page calls the folder, `formulas` the byte_formulas of its job.
Json run_of(const fs::path& folder, const std::string& name, const FormulasOf& formulas) {
  const fs::path file = folder / "run.json";
  const std::optional<Json> manifest = read_object(file);
  if (!manifest) fail(ErrorKind::data, "{}: holds no run (run.json is missing)", folder.string());
  Json run = {{"folder", name}, {"manifest", reading(file, [&] { return manifest_of(*manifest); })}};
  run["summary"] = nullptr;
  if (std::optional<Json> summary = read_object(folder / "summary.json"))
    reading(folder / "summary.json", [&] {
      const Json roles = summary->value("roles", Json::object());
      summary->erase("roles");
      run["workers"] = workers_of(roles);
      run["traffic"] = traffic_of(roles);
      run["retransmitted"] = retransmitted_of(roles);
      run["tables"] = tables_of(roles);
      run["formulas"] = formulas_of(*summary, roles, formulas((*manifest)["job"]));
      run["summary"] = std::move(*summary);
    });
  const Json series = metrics_series(folder / "metrics.jsonl");
  for (const auto& [key, figures] : series.items()) run[key] = figures;
  run["memory_log"] = memory_series(folder / "memory.jsonl");
  run["recoveries"] = recoveries_of(folder / "recoveries.jsonl");
  run["trace"] = trace_figures(folder / kEventsFolder);
  return run;
}

/// The strategy of a job; null if this program does not have it.
std::unique_ptr<worker::StrategyKind> kind_of(const Json& job, const worker::Registries& registries) {
  const Spec spec = Spec::parse("--strategy", job.at("strategy").get<std::string>());
  return registries.strategies.contains(spec.name()) ? registries.strategies.make(spec) : nullptr;
}

std::optional<Layout> layout_of(const Json& job, const worker::Registries& registries) {
  const std::optional<JobOptions> options = read_job(job);
  return options ? job_layout(*options, registries) : std::nullopt;
}

Json formulas_of_job(const Json& job, const worker::Registries& registries) {
  const auto kind = kind_of(job, registries);
  const std::optional<JobOptions> options = read_job(job);
  const std::optional<Layout> layout = layout_of(job, registries);
  return kind != nullptr && options && layout ? byte_formulas(*kind, *options, *layout) : Json();
}

Json ownership_of(const Json& job, const worker::Registries& registries) {
  const auto kind = kind_of(job, registries);
  if (kind == nullptr) return {};
  const std::optional<Layout> layout = layout_of(job, registries);
  Json owned = ownership(*kind, job, layout, layout ? layout->weights : CutWeights());
  const std::optional<JobOptions> options = read_job(job);
  if (options && options->mesh().divides_model() && owned.is_object())
    if (Json units = mesh_units(*options, registries); units.is_array()) owned["units"] = std::move(units);
  return owned;
}

class Collection {
 public:
  explicit Collection(const worker::Registries& registries) : registries_(registries) {}

  void add(const fs::path& folder) {
    std::error_code none;
    check_folder(folder.string());
    if (const std::optional<Json> compared = read_object(folder / "compare.json")) {
      reading(folder / "compare.json", [&] { add_comparison(folder, *compared); });
    } else if (fs::exists(folder / "run.json", none)) {
      add_run(folder);
    } else {
      fail(ErrorKind::data, "{}: holds no run (neither run.json nor compare.json is there)", folder.string());
    }
  }

  Json document(const std::string& program) {
    tell_labels_apart();
    Json lines = sweeps(rows_);
    return {{"format", 2},
            {"program", program},
            {"sources", std::move(sources_)},
            {"rows", std::move(rows_)},
            {"sweeps", std::move(lines)}};
  }

 private:
  static std::string name_of(const fs::path& folder) {
    const fs::path whole = fs::absolute(folder).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  }

  void add_run(const fs::path& folder) {
    Json run = read_run(folder, name_of(folder));
    const Json job = run["manifest"]["job"];
    sources_.push_back({{"name", name_of(folder)},
                        {"kind", "run"},
                        {"command", run["manifest"].value("command", Json::array())},
                        {"ended", !run["summary"].is_null()}});
    const Json bound = run["summary"].is_object() ? run["summary"].value("bound", Json()) : Json();
    Json runs = Json::array();
    runs.push_back(std::move(run));
    add_row(job.at("strategy").get<std::string>(), job, nullptr, bound, std::move(runs));
  }

  void add_comparison(const fs::path& folder, const Json& compared) {
    sources_.push_back({{"name", name_of(folder)},
                        {"kind", "compare"},
                        {"command", compared.at("command")},
                        {"ended", compared.value("ended", true)}});
    if (compared.at("rows").size() == 0) fail(ErrorKind::data, "{}: no run of it has ended yet", folder.string());
    for (const Json& row : compared["rows"]) {
      const auto label = row.at("strategy").get<std::string>();
      Json runs = Json::array();
      for (std::size_t run = 0; run < row.at("runs").size(); ++run) {
        const fs::path own = run_folder(folder, label, run);
        runs.push_back(read_run(own, name_of(folder) + "/" + own.lexically_relative(folder).string()));
      }
      Json figures = row;
      figures.erase("job");
      figures.erase("runs");
      add_row(label, row.at("job"), std::move(figures), row, std::move(runs));
    }
  }

  Json read_run(const fs::path& folder, const std::string& name) const {
    return run_of(folder, name, [&](const Json& job) { return formulas_of_job(job, registries_); });
  }

  /// `figures`: of the row of a comparison, or null. `bound`: an object with the advice, or null.
  void add_row(const std::string& label, const Json& job, Json figures, const Json& bound, Json runs) {
    Json row = {{"label", label}, {"source", sources_.size() - 1}, {"ownership", ownership_of(job, registries_)}};
    if (bound.is_object())
      row["next_command"] = next_command(sources_.back().at("command").get<std::vector<std::string>>(), job,
                                         bound.value("next", std::string()));
    row["compare"] = std::move(figures);
    row["runs"] = std::move(runs);
    rows_.push_back(std::move(row));
  }

  /// Rows of several folders may have the same label: the folder's name, or its number, is added.
  void tell_labels_apart() {
    std::map<std::string, int> counts;
    for (const Json& row : rows_) ++counts[row["label"].get<std::string>()];
    std::set<std::string> used;
    for (Json& row : rows_) {
      auto label = row["label"].get<std::string>();
      if (counts[label] > 1) {
        const std::size_t source = row["source"].get<std::size_t>();
        label += " (" + sources_[source]["name"].get<std::string>() + ")";
        if (used.contains(label)) label += fmt::format(" #{}", source + 1);
      }
      used.insert(label);
      row["label"] = label;
    }
  }

  const worker::Registries& registries_;
  Json sources_ = Json::array();
  std::vector<Json> rows_;
};

}  // namespace

Json collect(const std::vector<fs::path>& folders, const worker::Registries& registries, const std::string& program) {
  Collection collection(registries);
  for (const fs::path& folder : folders) collection.add(folder);
  return collection.document(program);
}

}  // namespace psring::view
