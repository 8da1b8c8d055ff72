#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <psring/cli/compare/table_cells.h>
#include <psring/cli/text_table.h>

namespace psring::cli {
namespace {

std::uint64_t most_booked(const Row& row, std::uint64_t Summary::*figure) {
  std::uint64_t most = 0;
  for (const Summary& run : row.runs) most = std::max(most, run.*figure);
  return most;
}

}  // namespace

std::string number(double value, int decimals) {
  if (!std::isfinite(value)) return kNothing;
  for (; decimals >= 0; --decimals)
    if (std::string text = fmt::format("{:.{}f}", value, decimals); text.size() <= 7) return text;
  return fmt::format("{:.1e}", value);
}

std::string number(const std::optional<double>& value, int decimals) {
  return value ? number(*value, decimals) : kNothing;
}

std::string percent(double share) { return number(100 * share, 1) + " %"; }

std::string count(std::optional<std::uint64_t> bytes) {
  if (!bytes) return kNothing;
  return *bytes < 10'000'000'000 ? std::to_string(*bytes) : fmt::format("{:.4g} G", static_cast<double>(*bytes) / 1e9);
}

std::string signed_difference(std::uint64_t measured, std::uint64_t predicted) {
  return measured >= predicted ? fmt::format("+{}", measured - predicted) : fmt::format("-{}", predicted - measured);
}

std::string marked(std::string figure, const std::optional<bool>& ok) {
  return std::move(figure) + (!ok ? " —" : *ok ? " ✓" : " ✗");
}

std::string time_cell(const Row& row, std::string figure) {
  return std::move(figure) + (not_comparable(row.step()).empty() ? "" : "*");
}

std::string memory_cell(const Row& row, std::string_view role, std::uint64_t Summary::*figure) {
  return marked(number(static_cast<double>(most_booked(row, figure)) / kMiB, 1), memory_ok(row, role));
}

std::string_view ModelColumns::result_name() const {
  switch (result) {
    case Result::accuracy:
      return "acc";
    case Result::perplexity:
      return "ppl";
    case Result::own:
      return metric;
    case Result::loss:
      return "loss";
  }
  return "?";
}

std::string ModelColumns::result_cell(const Summary& run) const {
  switch (result) {
    case Result::accuracy:
      return number(run.test_accuracy, 4);
    case Result::perplexity:
      return number(run.test_perplexity(), 2);
    case Result::own:
      return number(run.test_own.at(metric), 4);
    case Result::loss:
      return number(run.final_loss, 4);
  }
  return kNothing;
}

ModelColumns model_columns(const std::vector<Row>& rows) {
  const auto all = [&](auto has) {
    return std::all_of(rows.begin(), rows.end(), [&](const Row& row) { return has(row.runs.front()); });
  };
  const auto any = [&](auto has) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return has(row.runs.front()); });
  };
  using Result = ModelColumns::Result;
  if (!rows.empty() && all([](const Summary& run) { return run.reads_text(); })) {
    const bool tested = any([](const Summary& run) { return run.test_perplexity().has_value(); });
    return {"tokens/s", &Summary::tokens_per_second, tested ? Result::perplexity : Result::loss};
  }
  // The first metric that all rows have: rows may be of different models.
  if (!rows.empty())
    for (const auto& [name, mean] : rows.front().runs.front().test_own)
      if (all([&](const Summary& run) { return run.test_own.contains(name); }))
        return {"samples/s", &Summary::samples_per_second, Result::own, name};
  const bool classes = any([](const Summary& run) { return run.test_accuracy.has_value(); });
  return {"samples/s", &Summary::samples_per_second, classes ? Result::accuracy : Result::loss};
}

bool several_runs(const std::vector<Row>& rows) {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.runs.size() > 1; });
}

}  // namespace psring::cli
