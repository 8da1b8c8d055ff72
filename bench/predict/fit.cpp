#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <vector>

#include <psring/bench/predict/fit.h>
#include <psring/common/base/median.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/device/processor.h>
#include <psring/common/net/host.h>
#include <psring/ring/plan/tuning.h>

namespace psring::bench {
namespace {

constexpr int kVersion = 3;
constexpr Eigen::Index kTerms = 3;  ///< a fixed time, the size, the elements
using Terms = Eigen::Matrix<double, kTerms, 1>;

double term(const TimedSize& each, Eigen::Index which) {
  return which == 0 ? 1 : which == 1 ? each.size : each.elements;
}

/// A line's terms, and half of the 95 % confidence interval of each.
struct Solution {
  Terms terms = Terms::Zero();
  Terms bounds = Terms::Zero();
  double squares = 0;  ///< sum of the squared relative errors
};

/// Solves the weighted problem with the terms of `columns` alone. Sizes span many orders of magnitude: each column is
/// scaled to 1, so that the factorisation keeps its precision.
Solution solve(std::span<const TimedSize> measured, const std::vector<Eigen::Index>& columns) {
  const auto rows = static_cast<Eigen::Index>(measured.size());
  const auto cols = static_cast<Eigen::Index>(columns.size());
  Eigen::MatrixXd left(rows, cols);
  for (Eigen::Index row = 0; row < rows; ++row)
    for (Eigen::Index col = 0; col < cols; ++col) {
      const TimedSize& each = measured[static_cast<std::size_t>(row)];
      left(row, col) = term(each, columns[static_cast<std::size_t>(col)]) / each.seconds;
    }
  const Eigen::VectorXd right = Eigen::VectorXd::Ones(rows);
  const Eigen::VectorXd scale = left.colwise().norm().transpose();
  left = left * scale.cwiseInverse().asDiagonal();
  const Eigen::VectorXd scaled = left.completeOrthogonalDecomposition().solve(right);
  Solution solution{.squares = (left * scaled - right).squaredNorm()};
  const Eigen::MatrixXd spread = (left.transpose() * left).completeOrthogonalDecomposition().pseudoInverse();
  const double variance = rows > cols ? solution.squares / static_cast<double>(rows - cols) : 0;
  for (Eigen::Index col = 0; col < cols; ++col) {
    const Eigen::Index which = columns[static_cast<std::size_t>(col)];
    solution.terms(which) = scaled(col) / scale(col);
    solution.bounds(which) = 1.96 * std::sqrt(variance * spread(col, col)) / scale(col);
  }
  return solution;
}

/// The best solution without negative terms.
Solution best_of(std::span<const TimedSize> measured) {
  const auto occurs = [&](Eigen::Index which) {
    return std::any_of(measured.begin(), measured.end(), [&](const TimedSize& each) { return term(each, which) > 0; });
  };
  const std::vector<std::vector<Eigen::Index>> sets{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
  std::optional<Solution> best;
  for (const auto& set : sets) {
    if (!std::all_of(set.begin(), set.end(), occurs) || set.size() > measured.size()) continue;
    const Solution found = solve(measured, set);
    if (found.terms.minCoeff() >= 0 && (!best || found.squares < best->squares * (1 - 1e-9))) best = found;
  }
  check(best.has_value(), "no line without negative terms");
  return *best;
}

/// The numbers of a line in a file.
constexpr std::pair<const char*, double CostLine::*> kNumbers[] = {{"fixed_s", &CostLine::fixed_s},
                                                                   {"per_unit_s", &CostLine::per_unit_s},
                                                                   {"per_element_s", &CostLine::per_element_s},
                                                                   {"median_error", &CostLine::median_error},
                                                                   {"worst_error", &CostLine::worst_error},
                                                                   {"fixed_error", &CostLine::fixed_error},
                                                                   {"per_unit_error", &CostLine::per_unit_error},
                                                                   {"most", &CostLine::most}};

}  // namespace

CostLine fit_line(std::span<const TimedSize> measured, const std::string& unit) {
  check(measured.size() >= 2, "a line through fewer than two measurements");
  const Solution found = best_of(measured);
  const auto relative = [&](Eigen::Index which) {
    return found.terms(which) > 0 ? found.bounds(which) / found.terms(which) : 0;
  };
  CostLine line{.fixed_s = found.terms(0),
                .per_unit_s = found.terms(1),
                .per_element_s = found.terms(2),
                .unit = unit,
                .points = measured.size(),
                .fixed_error = relative(0),
                .per_unit_error = relative(1)};
  std::vector<double> errors;
  for (const TimedSize& each : measured) {
    errors.push_back(std::abs(line.seconds(each.size, each.elements) / each.seconds - 1));
    line.most = std::max(line.most, each.size);
  }
  line.median_error = median(errors);
  line.worst_error = *std::ranges::max_element(errors);
  return line;
}

const CostLine* Fit::find(const std::string& name) const {
  const auto found = lines.find(name);
  return found == lines.end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void refuse_missing(const std::string& name) {
  fail(ErrorKind::usage, "--fit: has no {}; psring fit --out FILE measures it, and adds it to the file", name);
}

}  // namespace

const CostLine& Fit::line(const std::string& name) const {
  const CostLine* found = find(name);
  if (found == nullptr) refuse_missing(name);
  return *found;
}

double Fit::factor(const std::string& name) const {
  const auto found = factors.find(name);
  if (found == factors.end()) refuse_missing(name);
  return found->second;
}

Json to_json(const Fit& fit) {
  Json lines = Json::object();
  for (const auto& [name, line] : fit.lines) {
    lines[name] = {{"unit", line.unit}, {"points", line.points}, {"good", line.good()}};
    for (const auto& [key, number] : kNumbers) lines[name][key] = line.*number;
  }
  Json factors = Json::object();
  for (const auto& [name, value] : fit.factors) factors[name] = value;
  Json json = {{"format", "psring-fit"},       {"version", kVersion},          {"host", fit.host},
               {"processor", fit.processor},   {"processors", fit.processors}, {"lines", std::move(lines)},
               {"factors", std::move(factors)}};
  if (!fit.program.empty()) json["program"] = fit.program;
  if (!fit.tuning.empty()) {
    json["all_reduce"] = Json::parse(fit.tuning).at("all_reduce");
    json["all_reduce_over"] = fit.tuned_over;
  }
  return json;
}

namespace {

/// Throws data, and JsonError if something is missing or of another type.
Fit fit_of(const Json& json) {
  if (const int version = json.at("version").get<int>(); version != kVersion)
    fail(ErrorKind::data, "version {}, expected {}; measure again with psring fit", version, kVersion);
  Fit fit{.host = json.at("host").get<std::string>(),
          .processor = json.at("processor").get<std::string>(),
          .processors = json.at("processors").get<std::size_t>()};
  for (const auto& [name, numbers] : json.at("lines").items()) {
    CostLine& line = fit.lines[name];
    line.unit = numbers.at("unit").get<std::string>();
    line.points = numbers.at("points").get<std::size_t>();
    for (const auto& [key, number] : kNumbers) line.*number = numbers.at(key).get<double>();
    if (!(line.fixed_s >= 0) || !(line.per_unit_s >= 0) || !(line.per_element_s >= 0))
      fail(ErrorKind::data, "{} has a negative cost", name);
  }
  for (const auto& [name, value] : json.at("factors").items()) fit.factors[name] = value.get<double>();
  if (json.contains("program")) fit.program = json.at("program").get<std::string>();
  if (!json.contains("all_reduce")) return fit;
  fit.tuning = Json{{"all_reduce", json.at("all_reduce")}}.dump();
  ring::Tuning::from_json(fit.tuning);  // throws data if it is no table
  if (json.contains("all_reduce_over")) fit.tuned_over = json.at("all_reduce_over").get<std::string>();
  return fit;
}

}  // namespace

Fit fit_of_host() {
  return {.host = net::host_name(), .processor = describe_processor(), .processors = usable_processors()};
}

namespace {

constexpr std::uint64_t kMostFitBytes = std::uint64_t{1} << 26;

std::string text_of(const char* flag, const std::string& file) {
  try {
    return read_text(file, kMostFitBytes);
  } catch (const Error& error) {
    fail(error.kind(), "{} {}", flag, error.what());
  }
}

}  // namespace

Fit load_fit(const char* flag, const std::string& file) {
  const std::optional<Json> json = Json::try_parse(text_of(flag, file));
  if (!json || !json->is_object() || !json->contains("format") || json->at("format") != Json("psring-fit"))
    fail(ErrorKind::data, "{} {}: expected a file of psring fit", flag, file);
  const std::string context = fmt::format("{} {}", flag, file);
  try {
    return fit_of(*json);
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: {}", context, error.what());
  } catch (const Error& error) {
    throw error.with_context(context);
  }
}

Fit open_fit(const char* flag, const std::string& file, const std::string& host) {
  Fit fit = std::filesystem::exists(file) ? load_fit(flag, file) : Fit{};
  if (!fit.host.empty() && fit.host != host)
    fail(ErrorKind::data, "{} {}: has the costs of host {}, not of {}; choose another file", flag, file, fit.host,
         host);
  return fit;
}

void add_to_fit(const char* flag, const std::string& file, const Fit& more) {
  Fit fit = open_fit(flag, file, more.host);
  if (!more.program.empty()) fit.program = more.program;
  fit.host = more.host;
  if (!more.processor.empty()) fit.processor = more.processor;
  if (more.processors > 0) fit.processors = more.processors;
  for (const auto& [name, line] : more.lines) fit.lines[name] = line;
  for (const auto& [name, value] : more.factors) fit.factors[name] = value;
  if (!more.tuning.empty()) {
    fit.tuning = more.tuning;
    fit.tuned_over = more.tuned_over;
  }
  write_whole(file, to_json(fit).dump(2) + "\n");
}

namespace {

/// One cost, and the unit of its size.
struct ReferenceCost {
  const char* name;
  double fixed_s;
  double per_unit_s;
  const char* unit;
};

// Medians of three runs of `psring fit --out FILE`, which measures every line of this table and the sleep below.
constexpr const char* kMachine = "two cores of an AMD EPYC with AVX-512";
constexpr std::size_t kProcessors = 2;
constexpr double kSleep = 7.92e-05;
constexpr ReferenceCost kCosts[] = {
    {"batch.server.shaped", 2.45e-05, 3e-10, "byte"},
    {"batch.server.shm", 1.11e-06, 4.1e-11, "byte"},
    {"batch.server.tcp", 1.03e-05, 2.89e-10, "byte"},
    {"batch.server.tcp-encrypted", 1.08e-05, 1.69e-09, "byte"},
    {"hop.ring.shaped", 0.000123, 1.56e-10, "byte"},
    {"hop.ring.tcp", 4.52e-06, 9.22e-11, "byte"},
    {"hop.ring.tcp-encrypted", 7.64e-06, 1.19e-09, "byte"},
    {"hop.server.shaped", 0.00014, 1.34e-10, "byte"},
    {"hop.server.shm", 6.9e-07, 1.34e-11, "byte"},
    {"hop.server.tcp", 2.75e-05, 1.79e-10, "byte"},
    {"hop.server.tcp-encrypted", 2.77e-05, 1.5e-09, "byte"},
    {"memory.copy", 0, 9.72e-12, "byte"},
    {"server.aggregate", 0, 5.83e-11, "element"},
    {"update.adagrad", 0, 2.37e-10, "element"},
    {"update.adam", 0, 2.51e-10, "element"},
    {"update.adamw", 0, 2.44e-10, "element"},
    {"update.lamb", 0, 2.49e-10, "element"},
    {"update.rmsprop", 0, 2.38e-10, "element"},
    {"update.sgd", 0, 6.61e-11, "element"},
    {"update.sgd-momentum", 0, 1.02e-10, "element"},
    {"work.ring.shaped", 5.01e-05, 3.52e-10, "byte"},
    {"work.ring.tcp", 1e-05, 3.67e-10, "byte"},
    {"work.ring.tcp-encrypted", 1.34e-05, 1.67e-09, "byte"},
    {"work.server.shaped", 6.22e-05, 2.89e-10, "byte"},
    {"work.server.shm", 5.99e-06, 3.21e-11, "byte"},
    {"work.server.tcp", 2.62e-05, 2.3e-10, "byte"},
    {"work.server.tcp-encrypted", 2.67e-05, 1.61e-09, "byte"},
};

Fit make_reference() {
  Fit fit{.host = "reference", .processor = kMachine, .processors = kProcessors};
  for (const ReferenceCost& cost : kCosts)
    fit.lines[cost.name] = {.fixed_s = cost.fixed_s, .per_unit_s = cost.per_unit_s, .unit = cost.unit};
  fit.factors["sleep_s"] = kSleep;
  return fit;
}

}  // namespace

const Fit& reference_fit() {
  static const Fit fit = make_reference();
  return fit;
}

}  // namespace psring::bench
