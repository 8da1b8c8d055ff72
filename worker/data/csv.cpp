#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/data/csv.h>

namespace psring::worker {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
/// Texts of a cell without a value, in small letters.
constexpr std::array<std::string_view, 8> kMissingTexts = {"", "?", "na", "n/a", "nan", "-nan", "null", "none"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_missing(std::string_view cell) {
  constexpr std::size_t kLongest = 4;
  if (cell.size() > kLongest) return false;
  std::string small(cell);
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kMissingTexts.begin(), kMissingTexts.end(), small) != kMissingTexts.end();
}

/// The rows of a file, cut into cells as Python's csv module cuts them: a cell in double quotes may hold commas, line
/// ends, and quotes that stand twice.
class Rows {
 public:
  explicit Rows(const std::string& path) : path_(path), lines_(path) {}

  /// Writes the next row's cells. Returns false at the end of the file.
  bool next(std::vector<std::string>& cells) {
    std::string line;
    if (!read_line(line)) return false;
    row_ = lines_read_;
    cells.clear();
    for (std::size_t at = 0; at <= line.size();) cells.push_back(cell(line, at));
    return true;
  }
  /// The number of the line with which the row begins, from 1 on.
  std::size_t row() const { return row_; }

 private:
  bool read_line(std::string& line) {
    const bool found = lines_.next(line);
    if (found) ++lines_read_;
    return found;
  }

  /// Returns the cell that begins at `at`, and moves `at` behind its comma. Adds lines while a quote is open.
  std::string cell(std::string& line, std::size_t& at) {
    std::string text;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        while (at >= line.size()) add_line(line);
        if (line[at] == '"' && (++at >= line.size() || line[at] != '"')) break;
        text += line[at];
      }
    }
    const std::size_t end = std::min(line.find(',', at), line.size());
    text.append(line, at, end - at);
    at = end + 1;
    return text;
  }

  void add_line(std::string& line) {
    std::string more;
    if (!read_line(more)) fail(ErrorKind::data, "{}: line {}: a double quote is not closed", path_, row_);
    line += '\n';
    line += more;
  }

  const std::string& path_;
  LineReader lines_;
  std::size_t lines_read_ = 0;
  std::size_t row_ = 0;
};

class CsvDataset final : public Dataset {
 public:
  CsvDataset(CsvColumns columns, std::vector<float> inputs, std::vector<float> values, std::vector<std::int32_t> labels)
      : columns_(columns), inputs_(std::move(inputs)), values_(std::move(values)), labels_(std::move(labels)) {}

  std::size_t size() const override { return inputs_.size() / columns_.inputs; }
  std::size_t input_cols() const override { return columns_.inputs; }
  std::size_t targets_per_sample() const override { return columns_.classes > 0 ? 1 : 0; }
  std::size_t classes() const override { return columns_.classes; }
  std::size_t target_values() const override { return columns_.values; }

  void read(std::size_t index, const SampleMemory& to) const override {
    check(index < size() && to.input.size() == columns_.inputs && to.values.size() == columns_.values,
          "read of sample {} of {}", index, size());
    std::copy_n(inputs_.begin() + static_cast<std::ptrdiff_t>(index * columns_.inputs), columns_.inputs,
                to.input.begin());
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(index * columns_.values), columns_.values,
                to.values.begin());
    if (columns_.classes > 0) to.classes[0] = labels_[index];
  }

 private:
  CsvColumns columns_;
  std::vector<float> inputs_;
  std::vector<float> values_;
  std::vector<std::int32_t> labels_;
};

/// Reads rows into columns.
class Reader {
 public:
  Reader(const std::string& path, const CsvColumns& columns, CsvMissing& missing)
      : path_(path), columns_(columns), missing_(missing), rows_(path) {}

  std::unique_ptr<Dataset> read() {
    bool is_first = true;
    for (std::vector<std::string> cells; rows_.next(cells);) {
      if (cells.size() == 1 && trimmed(cells[0]).empty()) continue;
      if (!std::exchange(is_first, false) || !is_header(cells)) add(cells);
    }
    fill_missing();
    return std::make_unique<CsvDataset>(columns_, std::move(inputs_), std::move(values_), std::move(labels_));
  }

 private:
  std::size_t expected() const { return columns_.inputs + columns_.values + (columns_.classes > 0 ? 1 : 0); }

  /// A header has names and no number. A row of cells without values is a sample that misses them all.
  static bool is_header(const std::vector<std::string>& cells) {
    bool has_name = false;
    for (const std::string& text : cells) {
      const std::string_view cell = trimmed(text);
      if (is_missing(cell)) continue;
      if (number_of(cell)) return false;
      has_name = true;
    }
    return has_name;
  }

  void add(const std::vector<std::string>& cells) {
    if (cells.size() != expected())
      fail(ErrorKind::data, "{}: line {} has {} columns, {} expected ({} inputs, {})", path_, rows_.row(), cells.size(),
           expected(), columns_.inputs, columns_.classes > 0 ? "a class" : fmt::format("{} targets", columns_.values));
    for (std::size_t column = 0; column < cells.size(); ++column) put(column, value_of(trimmed(cells[column]), column));
  }

  float value_of(std::string_view cell, std::size_t column) const {
    if (is_missing(cell)) {
      if (missing_.rule == CsvMissing::Rule::refuse)
        fail(ErrorKind::data, "{}: line {}, column {}: '{:.80}': the value is missing; fill it in, or {}", path_,
             rows_.row(), column + 1, cell,
             column < columns_.inputs ? "give csv:FILE,missing=mean or missing=zero" : "remove the line");
      if (column >= columns_.inputs)
        fail(ErrorKind::data, "{}: line {}, column {}: '{:.80}': the target is missing; only inputs are filled", path_,
             rows_.row(), column + 1, cell);
      return kMissing;
    }
    const std::optional<float> value = number_of(cell);
    if (!value)
      fail(ErrorKind::data, "{}: line {}, column {}: '{:.80}' is not a number (a header has no numbers)", path_,
           rows_.row(), column + 1, cell);
    if (!std::isfinite(*value))
      fail(ErrorKind::data, "{}: line {}, column {}: '{:.80}' is not finite", path_, rows_.row(), column + 1, cell);
    return *value;
  }

  void put(std::size_t column, float value) {
    if (column < columns_.inputs)
      inputs_.push_back(value);
    else if (column < columns_.inputs + columns_.values)
      values_.push_back(value);
    else
      put_class(value);
  }
  void put_class(float value) {
    if (value < 0 || value >= static_cast<float>(columns_.classes) || value != std::floor(value))
      fail(ErrorKind::data, "{}: line {}: {} is not one of the model's classes 0 to {}", path_, rows_.row(), value,
           columns_.classes - 1);
    labels_.push_back(static_cast<std::int32_t>(value));
  }

  void fill_missing() {
    if (missing_.rule == CsvMissing::Rule::zero) missing_.values.assign(columns_.inputs, 0);
    if (missing_.rule == CsvMissing::Rule::mean && missing_.values.empty()) missing_.values = means();
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (std::isnan(inputs_[i])) inputs_[i] = filling(i % columns_.inputs);
  }
  float filling(std::size_t column) const {
    const float value = missing_.values.at(column);
    if (std::isnan(value))
      fail(ErrorKind::data, "{}: column {}: missing=mean, but the column has no value", path_, column + 1);
    return value;
  }
  /// The mean of each column's values, summed in f64; NaN for a column without values.
  std::vector<float> means() const {
    std::vector<double> sums(columns_.inputs);
    std::vector<std::size_t> counts(columns_.inputs);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (std::isnan(inputs_[i])) continue;
      sums[i % columns_.inputs] += inputs_[i];
      ++counts[i % columns_.inputs];
    }
    std::vector<float> means(columns_.inputs, kMissing);
    for (std::size_t c = 0; c < means.size(); ++c)
      if (counts[c] > 0) means[c] = static_cast<float>(sums[c] / static_cast<double>(counts[c]));
    return means;
  }

  const std::string& path_;
  const CsvColumns columns_;
  CsvMissing& missing_;
  Rows rows_;
  std::vector<float> inputs_;
  std::vector<float> values_;
  std::vector<std::int32_t> labels_;
};

}  // namespace

std::optional<float> number_of(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    std::istringstream in{std::string(text)};
    in.imbue(std::locale::classic());
    if (!(in >> value)) value = text.starts_with('-') ? -HUGE_VAL : HUGE_VAL;
  }
  return static_cast<float>(value);
}

CsvMissing CsvMissing::parse(std::string_view flag, std::string_view text) {
  if (text == "refuse") return {};
  if (text == "zero") return {.rule = Rule::zero, .values = {}};
  if (text == "mean") return {.rule = Rule::mean, .values = {}};
  fail(ErrorKind::usage, "{}: missing={}: expected mean, zero or refuse", flag, text);
}

std::unique_ptr<Dataset> load_csv(const std::string& path, const CsvColumns& columns, CsvMissing& missing) {
  check(columns.inputs > 0 && (columns.values > 0) != (columns.classes > 0), "{}: {} inputs, {} targets, {} classes",
        path, columns.inputs, columns.values, columns.classes);
  return Reader(path, columns, missing).read();
}

}  // namespace psring::worker
