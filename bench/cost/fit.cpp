#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include <psring/bench/cost/fit.h>
#include <psring/common/base/error.h>

namespace psring::bench {
namespace {

constexpr int kVersion = 1;

/// Solves the weighted problem with only the columns that are asked for.
Eigen::Vector2d solve(std::span<const TimedSize> measured, bool fixed, bool per_unit) {
  const auto rows = static_cast<Eigen::Index>(measured.size());
  Eigen::MatrixXd left(rows, 2);
  const Eigen::VectorXd right = Eigen::VectorXd::Ones(rows);
  // Sizes span many orders of magnitude: scaled to 1, so that the factorisation keeps its precision.
  double largest = 0;
  for (const TimedSize& each : measured) largest = std::max(largest, each.size);
  for (Eigen::Index row = 0; row < rows; ++row) {
    const TimedSize& each = measured[static_cast<std::size_t>(row)];
    left(row, 0) = fixed ? 1 / each.seconds : 0;
    left(row, 1) = per_unit ? each.size / largest / each.seconds : 0;
  }
  Eigen::Vector2d solution = left.completeOrthogonalDecomposition().solve(right);
  solution(1) /= largest;
  return solution;
}

double number(const Json& json, const char* name) { return json.at(name).get<double>(); }

}  // namespace

CostLine fit_line(std::span<const TimedSize> measured, const std::string& unit) {
  check(measured.size() >= 2, "a line through fewer than two measurements");
  Eigen::Vector2d solution = solve(measured, true, true);
  if (solution(0) < 0) solution = solve(measured, false, true);
  if (solution(1) < 0) solution = solve(measured, true, false);
  CostLine line{.fixed_s = solution(0), .per_unit_s = solution(1), .unit = unit, .points = measured.size()};
  std::vector<double> errors;
  double squares = 0;
  double mean = 0;
  double spread = 0;
  for (const TimedSize& each : measured) mean += each.size / each.seconds / static_cast<double>(measured.size());
  for (const TimedSize& each : measured) {
    const double error = line.seconds(each.size) / each.seconds - 1;
    errors.push_back(std::abs(error));
    squares += error * error;
    spread += std::pow(each.size / each.seconds - mean, 2);
  }
  std::sort(errors.begin(), errors.end());
  line.median_error = errors[errors.size() / 2];
  line.worst_error = errors.back();
  if (measured.size() > 2 && spread > 0 && line.per_unit_s > 0)
    line.per_unit_error =
        1.96 * std::sqrt(squares / static_cast<double>(measured.size() - 2) / spread) / line.per_unit_s;
  return line;
}

const CostLine* Fit::find(const std::string& name) const {
  const auto found = lines.find(name);
  return found == lines.end() ? nullptr : &found->second;
}

double Fit::factor(const std::string& name, double otherwise) const {
  const auto found = factors.find(name);
  return found == factors.end() ? otherwise : found->second;
}

Json to_json(const Fit& fit) {
  Json lines = Json::object();
  for (const auto& [name, line] : fit.lines)
    lines[name] = {{"unit", line.unit},
                   {"fixed_s", line.fixed_s},
                   {"per_unit_s", line.per_unit_s},
                   {"points", line.points},
                   {"median_error", line.median_error},
                   {"worst_error", line.worst_error},
                   {"per_unit_error", line.per_unit_error},
                   {"good", line.good()}};
  Json factors = Json::object();
  for (const auto& [name, value] : fit.factors) factors[name] = value;
  return {{"format", "psring-fit"},       {"version", kVersion},          {"host", fit.host},
          {"processor", fit.processor},   {"processors", fit.processors}, {"lines", std::move(lines)},
          {"factors", std::move(factors)}};
}

Fit load_fit(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!(text << in.rdbuf())) fail(ErrorKind::data, "--fit {}: cannot read the file", file);
  const std::optional<Json> json = Json::try_parse(text.str());
  if (!json || !json->is_object() || !json->contains("format") || json->at("format") != Json("psring-fit"))
    fail(ErrorKind::data, "--fit {}: expected a file of psring fit", file);
  try {
    if (json->at("version").get<int>() != kVersion)
      fail(ErrorKind::data, "--fit {}: version {}, expected {}; measure again with psring fit", file,
           json->at("version").get<int>(), kVersion);
    Fit fit{.host = json->at("host").get<std::string>(),
            .processor = json->at("processor").get<std::string>(),
            .processors = json->at("processors").get<std::size_t>()};
    for (const auto& [name, line] : json->at("lines").items()) {
      CostLine read{.fixed_s = number(line, "fixed_s"),
                    .per_unit_s = number(line, "per_unit_s"),
                    .unit = line.at("unit").get<std::string>(),
                    .points = line.at("points").get<std::size_t>(),
                    .median_error = number(line, "median_error"),
                    .worst_error = number(line, "worst_error"),
                    .per_unit_error = number(line, "per_unit_error")};
      if (!(read.fixed_s >= 0) || !(read.per_unit_s >= 0))
        fail(ErrorKind::data, "--fit {}: {} has a negative cost", file, name);
      fit.lines.emplace(name, read);
    }
    for (const auto& [name, value] : json->at("factors").items()) fit.factors[name] = value.get<double>();
    return fit;
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "--fit {}: {}", file, error.what());
  }
}

}  // namespace psring::bench
