#include <cmath>
#include <memory>

#include <fmt/format.h>

#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/keyed/every_tenth.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/keyed/tsv.h>

namespace psring::worker {
namespace {

class Criteo final : public Dataset {
 public:
  Criteo(const std::string& path, std::size_t inputs, std::size_t fields, std::size_t key_bits)
      : file_(path), inputs_(inputs), fields_(fields), key_bits_(key_bits) {
    std::vector<float> input(inputs);
    std::int32_t target = 0;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> counts(fields);
    TsvFile::Line line;
    for (std::size_t i = 0; i < file_.size(); ++i) {  // all errors are found before training
      file_.read(i, line);
      read_columns(line, {input, std::span(&target, 1)});
      read_key_columns(line, keys, counts);
      keys.clear();
    }
  }

  const InputFile& file() const { return file_.file(); }
  std::size_t size() const override { return file_.size(); }
  std::size_t input_cols() const override { return inputs_; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::size_t index, const SampleMemory& to) const override {
    TsvFile::Line line;
    file_.read(index, line);
    read_columns(line, to);
  }
  std::vector<KeyField> key_fields() const override {
    std::vector<KeyField> fields;
    for (std::size_t f = 0; f < fields_; ++f) fields.push_back({fmt::format("c{}", f)});
    return fields;
  }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    TsvFile::Line line;
    file_.read(index, line);
    read_key_columns(line, keys, counts);
  }

 private:
  void read_columns(const TsvFile::Line& line, const SampleMemory& to) const {
    if (line.columns.size() != 1 + inputs_ + fields_)
      file_.refuse(line, {},
                   fmt::format("{} columns, {} expected (0 or 1, {} real inputs, {} keys)", line.columns.size(),
                               1 + inputs_ + fields_, inputs_, fields_));
    if (line.columns[0] != "0" && line.columns[0] != "1")
      file_.refuse(line, 0, fmt::format("'{:.80}' is not 0 or 1", line.columns[0]));
    to.classes[0] = line.columns[0] == "1" ? 1 : 0;
    for (std::size_t i = 0; i < inputs_; ++i) {
      const float x = line.columns[1 + i].empty() ? 0 : file_.number(line, 1 + i);
      to.input[i] = static_cast<float>(std::log1p(std::fmax(static_cast<double>(x), 0.0)));
    }
  }
  void read_key_columns(const TsvFile::Line& line, std::vector<std::uint64_t>& keys,
                        std::span<std::uint32_t> counts) const {
    for (std::size_t f = 0; f < fields_; ++f) {
      const std::size_t column = 1 + inputs_ + f;
      counts[f] = line.columns[column].empty() ? 0 : 1;
      if (counts[f] == 1) keys.push_back(file_.whole(line, column, 16, key_bits_));
    }
  }

  const TsvFile file_;
  const std::size_t inputs_;
  const std::size_t fields_;
  const std::size_t key_bits_;
};

}  // namespace

DataSplit make_criteo_data(const Spec& spec, const DataNeeds& needs) {
  const std::string& path = path_of(spec, "criteo:FILE");
  if (needs.key_fields == 0) fail_misfit(spec, needs, "its samples have keys, the model has no table");
  const auto all = std::make_shared<const Criteo>(path, needs.input_cols, needs.key_fields, needs.key_bits);
  DataSplit split = every_tenth(all, 1, path);
  split.fingerprint = [all] { return fingerprint_of(all->file()); };
  return split;
}

}  // namespace psring::worker
