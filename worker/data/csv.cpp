#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include <psring/common/base/error.h>
#include <psring/worker/data/csv.h>

namespace psring::worker {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// Returns whether the text is a number, and writes it.
bool parse(std::string_view text, float& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

class CsvDataset final : public Dataset {
 public:
  CsvDataset(CsvColumns columns, std::vector<float> inputs, std::vector<float> values, std::vector<std::int32_t> labels)
      : columns_(columns), inputs_(std::move(inputs)), values_(std::move(values)), labels_(std::move(labels)) {}

  std::size_t size() const override { return inputs_.size() / columns_.inputs; }
  std::size_t input_cols() const override { return columns_.inputs; }
  std::size_t targets_per_sample() const override { return columns_.classes > 0 ? 1 : 0; }
  std::size_t classes() const override { return columns_.classes; }
  bool tokens() const override { return false; }
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

/// Reads lines into columns.
class Reader {
 public:
  Reader(std::string path, const CsvColumns& columns) : path_(std::move(path)), columns_(columns) {}

  void line(std::string_view text) {
    ++number_;
    if (trimmed(text).empty()) return;
    std::size_t column = 0;
    for (bool more = true; more; ++column) {
      const std::size_t comma = text.find(',');
      more = comma != std::string_view::npos;
      const std::string_view cell = trimmed(text.substr(0, comma));
      if (more) text.remove_prefix(comma + 1);
      float value = 0;
      if (!parse(cell, value)) {
        if (column == 0 && number_ == 1) return;  // a header
        fail(ErrorKind::data, "{}: line {}, column {}: '{}' is not a number", path_, number_, column + 1, cell);
      }
      if (!std::isfinite(value))
        fail(ErrorKind::data, "{}: line {}, column {}: '{}' is not finite", path_, number_, column + 1, cell);
      put(column, value);
    }
    if (column != expected())
      fail(ErrorKind::data, "{}: line {} has {} columns, {} expected ({} inputs, {})", path_, number_, column,
           expected(), columns_.inputs, columns_.classes > 0 ? "a class" : fmt::format("{} targets", columns_.values));
  }

  std::unique_ptr<Dataset> take() {
    return std::make_unique<CsvDataset>(columns_, std::move(inputs_), std::move(values_), std::move(labels_));
  }

 private:
  std::size_t expected() const { return columns_.inputs + columns_.values + (columns_.classes > 0 ? 1 : 0); }

  void put(std::size_t column, float value) {
    if (column < columns_.inputs)
      inputs_.push_back(value);
    else if (column < columns_.inputs + columns_.values)
      values_.push_back(value);
    else if (column < expected())
      put_class(value);
  }
  void put_class(float value) {
    if (value < 0 || value >= static_cast<float>(columns_.classes) || value != std::floor(value))
      fail(ErrorKind::data, "{}: line {}: {} is not one of the model's classes 0 to {}", path_, number_, value,
           columns_.classes - 1);
    labels_.push_back(static_cast<std::int32_t>(value));
  }

  const std::string path_;
  const CsvColumns columns_;
  std::size_t number_ = 0;
  std::vector<float> inputs_;
  std::vector<float> values_;
  std::vector<std::int32_t> labels_;
};

}  // namespace

std::unique_ptr<Dataset> load_csv(const std::string& path, const CsvColumns& columns) {
  check(columns.inputs > 0 && (columns.values > 0) != (columns.classes > 0), "{}: {} inputs, {} targets, {} classes",
        path, columns.inputs, columns.values, columns.classes);
  std::ifstream file(path);
  if (!file) fail(ErrorKind::data, "{}: cannot be opened", path);
  Reader reader(path, columns);
  for (std::string line; std::getline(file, line);) reader.line(line);
  if (file.bad()) fail(ErrorKind::data, "{}: cannot be read", path);
  return reader.take();
}

}  // namespace psring::worker
