#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/net/link_shaping.h>
#include <psring/view/report_parts.h>

namespace psring::view {
namespace {

constexpr std::array kOptions = {"workers", "servers", "bucket_bytes", "global_batch", "threads", "accumulate", "link"};
constexpr std::array kStates = {"parameters", "gradients", "optimizer"};

/// Options that differ between rows although nobody chose them so.
const std::set<std::string> kOfRun = {"run_id", "out", "steps", "epochs"};

std::optional<double> position(const Json& job, const std::string& option) {
  const Json& value = job.at(option);
  if (value.is_number()) return value.get<double>();
  if (!value.is_string() || value.get<std::string>().empty()) return std::nullopt;
  try {
    return net::parse_link(value.get<std::string>()).bits_per_second;
  } catch (const Error&) {
    return std::nullopt;
  }
}

constexpr const char* kAsMany = " s=n";

/// Returns the values of all options but one that differ within the comparison, as the key of a line. If
/// `as_many_servers`, the row belongs to a line over the workers along which the servers are as many.
std::string line_of(const Json& job, const std::string& option, const std::set<std::string>& differing,
                    bool as_many_servers) {
  std::string key;
  for (const std::string& name : differing)
    if (name != option && !(as_many_servers && name == "servers")) key += name + "=" + job[name].dump() + " ";
  return as_many_servers ? key + kAsMany : key;
}

std::set<std::string> differing_options(const std::vector<const Json*>& jobs) {
  std::set<std::string> names;
  for (const auto& [name, value] : jobs.front()->items()) {
    if (kOfRun.contains(name)) continue;
    const std::string& option = name;
    const Json& first = value;
    if (std::any_of(jobs.begin(), jobs.end(), [&](const Json* job) { return job->value(option, Json()) != first; }))
      names.insert(name);
  }
  return names;
}

const Json& job_of(const Json& row) { return row.at("runs")[0].at("manifest").at("job"); }

/// Returns the sum over parameters, gradients and optimizer state of the worker with the largest sum; null if a part
/// has no such figure.
Json states(const Json& row, const char* figure) {
  std::map<std::string, std::uint64_t> sums;
  for (const Json& check : row["runs"][0].at("summary").at("memory")) {
    const auto role = check.at("role").get<std::string>();
    const auto category = check.at("category").get<std::string>();
    if (!role.starts_with("worker") || std::find(kStates.begin(), kStates.end(), category) == kStates.end()) continue;
    if (!check.contains(figure)) return {};
    sums[role] += check[figure].get<std::uint64_t>();
  }
  std::uint64_t most = 0;
  for (const auto& [role, sum] : sums) most = std::max(most, sum);
  return most;
}

/// The states of one process that holds everything, split by whether workers divide them.
struct Divided {
  double whole = 0;
  double ranges = 0;
};

/// Nothing if a state lies with servers, or has no prediction.
std::optional<Divided> divided(const Json& row) {
  if (!row.at("ownership").is_object() || row["ownership"].contains("server")) return std::nullopt;
  Divided sum;
  for (const Json& check : row["runs"][0]["summary"]["memory"]) {
    const auto category = check.at("category").get<std::string>();
    if (check.at("role") != "worker 0" || std::find(kStates.begin(), kStates.end(), category) == kStates.end())
      continue;
    if (!check.contains("predicted")) return std::nullopt;
    const auto bytes = check["predicted"].get<double>();
    const auto state = row["ownership"].at("worker").at(category).get<std::string>();
    if (state == "whole")
      sum.whole += bytes;
    else
      sum.ranges += bytes * row["ownership"].at("parts").get<double>();
  }
  return sum;
}

void add_point(Json& series, const Json& row, std::size_t index, const std::string& option) {
  const Json& compare = row.at("compare");
  const Json& job = job_of(row);
  const Json& figures = compare.at("figures");
  series["x"].push_back(*position(job, option));
  series["value"].push_back(job.at(option));
  series["rows"].push_back(index);
  series["step_s"].push_back(compare.at("step_s").at("median"));
  series["least_s"].push_back(compare["step_s"].at("least"));
  series["most_s"].push_back(compare["step_s"].at("most"));
  Json predicted;
  for (const Json& worker : row["runs"][0].value("workers", Json::array()))
    if (worker.contains("predicted_exposed_comm_s")) {
      const double sum =
          worker.at("busy_step_s").at("median").get<double>() + worker["predicted_exposed_comm_s"].get<double>();
      predicted = predicted.is_null() ? sum : std::max(sum, predicted.get<double>());
    }
  series["predicted_s"].push_back(predicted);
  Json link;
  if (!figures.at("link_bytes_per_s").is_null())
    link = std::max(figures.at("worker_link_bytes").get<double>(), figures.at("server_link_bytes").get<double>()) /
           figures["link_bytes_per_s"].get<double>();
  series["link_s"].push_back(link);
}

Json memory_of(const Json& rows, const Json& series) {
  Json memory = {{"measured", Json::array()}, {"predicted", Json::array()}};
  double most = 0;
  for (std::size_t i = 0; i < series["rows"].size(); ++i) {
    const Json& row = rows[series["rows"][i].get<std::size_t>()];
    memory["measured"].push_back(states(row, "peak"));
    memory["predicted"].push_back(states(row, "predicted"));
    most = std::max(most, series["x"][i].get<double>());
  }
  const std::optional<Divided> sum = divided(rows[series["rows"][0].get<std::size_t>()]);
  if (!sum) return memory;
  memory["formula"] = Json::array();
  for (double n = 1; n <= 2 * most; ++n) memory["formula"].push_back({n, sum->whole + sum->ranges / n});
  memory["limit"] = sum->whole;
  memory["ratio"] = sum->whole > 0 ? Json((sum->whole + sum->ranges) / sum->whole) : Json();
  return memory;
}

/// Returns the words that the labels of all rows of a line share: "ddp link=1gbit" of "ddp n=2 link=1gbit" and others.
std::string label_of(const Json& rows, const std::map<double, std::size_t>& line) {
  std::vector<std::set<std::string>> words;
  for (const auto& [x, index] : line) {
    std::istringstream label(rows[index].at("label").get<std::string>());
    words.emplace_back(std::istream_iterator<std::string>(label), std::istream_iterator<std::string>());
  }
  std::string text;
  std::istringstream first(rows[line.begin()->second]["label"].get<std::string>());
  for (std::string word; first >> word;)
    if (std::all_of(words.begin(), words.end(), [&](const auto& other) { return other.contains(word); }))
      text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Returns one line of figures for each set of rows that differ in the option only.
Json series_of(const Json& rows, const std::vector<std::size_t>& own, const std::string& option,
               const std::set<std::string>& differing) {
  std::map<std::string, std::map<double, std::size_t>> lines;  // row by position, by line
  std::vector<std::string> order;
  for (const std::size_t index : own) {
    const Json& job = job_of(rows[index]);
    const std::optional<double> x = position(job, option);
    if (!x) continue;
    const auto add = [&](const std::string& key) {
      if (lines[key].try_emplace(*x, index).second && lines[key].size() == 1) order.push_back(key);
    };
    add(line_of(job, option, differing, false));
    const bool as_many = option == "workers" && differing.contains("servers") && job.at("servers") == job.at("workers");
    if (as_many) add(line_of(job, option, differing, true));
  }
  Json list = Json::array();
  for (const std::string& key : order) {
    if (lines[key].size() < 2) continue;
    Json series = {{"label", label_of(rows, lines[key]) + (key.ends_with(kAsMany) ? kAsMany : "")}};
    for (const auto& [x, index] : lines[key]) add_point(series, rows[index], index, option);
    series["memory"] = option == "workers" ? memory_of(rows, series) : Json();
    list.push_back(std::move(series));
  }
  return list;
}

}  // namespace

Json sweeps(const Json& rows) {
  std::map<std::size_t, std::vector<std::size_t>> sources;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].at("compare").is_object() && rows[i].at("runs")[0].at("summary").is_object())
      sources[rows[i].at("source").get<std::size_t>()].push_back(i);
  Json list = Json::array();
  for (const auto& [source, own] : sources) {
    std::vector<const Json*> jobs;
    for (const std::size_t index : own) jobs.push_back(&job_of(rows[index]));
    const std::set<std::string> differing = differing_options(jobs);
    for (const char* option : kOptions) {
      if (!differing.contains(option)) continue;
      Json series = series_of(rows, own, option, differing);
      if (series.size() > 0) list.push_back({{"source", source}, {"option", option}, {"series", std::move(series)}});
    }
  }
  return list;
}

}  // namespace psring::view
