#include <memory>
#include <vector>

#include <fmt/format.h>

#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/keyed/every_tenth.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/keyed/tsv.h>

namespace psring::worker {
namespace {

class Pairs final : public Dataset {
 public:
  Pairs(const TsvFile& file, std::size_t key_bits) {
    TsvFile::Line line;
    for (std::size_t i = 0; i < file.size(); ++i) {
      file.read(i, line);
      if (line.columns.size() < 3)
        file.refuse(line, {}, fmt::format("{} columns, at least 3 expected (user, item, value)", line.columns.size()));
      all_.push_back({file.whole(line, 0, 10, key_bits), file.whole(line, 1, 10, key_bits), file.number(line, 2)});
    }
  }

  std::size_t size() const override { return all_.size(); }
  std::size_t target_values() const override { return 1; }
  void read(std::size_t index, const SampleMemory& to) const override { to.values[0] = all_.at(index).value; }
  std::vector<KeyField> key_fields() const override { return {{"user"}, {"item"}}; }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    keys.push_back(all_.at(index).user);
    keys.push_back(all_.at(index).item);
    counts[0] = counts[1] = 1;
  }

 private:
  struct Pair {
    std::uint64_t user;
    std::uint64_t item;
    float value;
  };
  std::vector<Pair> all_;
};

}  // namespace

DataSplit make_pairs_data(const Spec& spec, const DataNeeds& needs) {
  const std::string& path = path_of(spec, "pairs:FILE");
  if (needs.key_fields != 2)
    fail_misfit(spec, needs, fmt::format("its samples have 2 key fields, the model reads {}", needs.key_fields));
  const TsvFile file(path);
  DataSplit split = every_tenth(std::make_shared<const Pairs>(file, needs.key_bits), 1, path);
  split.fingerprint = [path] { return fingerprint_of(InputFile(path)); };
  return split;
}

}  // namespace psring::worker
