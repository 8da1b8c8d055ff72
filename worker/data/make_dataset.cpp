#include <filesystem>
#include <memory>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/data/csv.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/idx.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/data/synthetic.h>
#include <psring/worker/data/text.h>

namespace psring::worker {
namespace {

constexpr const char* kFashionMnistFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kCsvForm = "csv:FILE or csv:train=FILE,test=FILE";

template <class... Args>
[[noreturn]] void misfit(const Spec& spec, const DataNeeds& needs, fmt::format_string<Args...> format, Args&&... args) {
  fail_misfit(spec, needs, fmt::format(format, std::forward<Args>(args)...));
}

const char* kind_of(bool tokens) { return tokens ? "tokens" : "real numbers"; }

void check_fit(const Dataset& data, const Spec& spec, const DataNeeds& needs) {
  if (data.size() == 0) fail(ErrorKind::data, "{} {} has no sample", spec.flag(), spec.text());
  if (data.size() > kMostSamples)
    fail(ErrorKind::data, "{} {} has {} samples, at most {} expected", spec.flag(), spec.text(), data.size(),
         kMostSamples);
  if (data.tokens() != needs.tokens)
    misfit(spec, needs, "its inputs are {}, {} expected", kind_of(data.tokens()), kind_of(needs.tokens));
  if (data.input_cols() != needs.input_cols)
    misfit(spec, needs, "{} inputs a sample, {} expected", data.input_cols(), needs.input_cols);
  if (data.target_values() != needs.target_values)
    misfit(spec, needs, "{} real targets a sample, {} expected", data.target_values(), needs.target_values);
  if (const std::size_t fields = data.key_fields().size(); fields != needs.key_fields)
    misfit(spec, needs, "{} key fields, {} expected", fields, needs.key_fields);
  if (!needs.targets) return;
  if (data.targets_per_sample() != needs.rows_per_sample)
    misfit(spec, needs, "{} targets a sample, {} expected", data.targets_per_sample(), needs.rows_per_sample);
  if (data.classes() > needs.classes)
    misfit(spec, needs, "its labels are 0 to {}, the model's classes 0 to {}", data.classes() - 1, needs.classes - 1);
}

/// A number of samples; 50k is 50,000 and 2M is 2,000,000.
std::size_t samples_of(const Spec& spec, std::size_t fallback) {
  std::string digits = spec.string("samples", std::to_string(fallback));
  std::size_t unit = 1;
  if (digits.ends_with('k')) unit = 1000;
  if (digits.ends_with('M')) unit = 1'000'000;
  if (unit > 1) digits.pop_back();
  const std::size_t count = parse_positive(fmt::format("{} {}:samples", spec.flag(), spec.name()), digits);
  if (count > ~std::size_t{0} / unit) fail(ErrorKind::usage, "{} {}: too many samples", spec.flag(), spec.text());
  return count * unit;
}

/// Loads a text. Checks that the model reads tokens before opening the file.
DataSplit load_text(const Spec& spec, const DataNeeds& needs, const char* expected, TokenFormat format) {
  const std::string& path = path_of(spec, expected);
  if (!needs.tokens) misfit(spec, needs, "its inputs are {}, {} expected", kind_of(true), kind_of(false));
  return load_tokens(path, format, needs.input_cols, needs.classes);
}

}  // namespace

void fail_misfit(const Spec& spec, const DataNeeds& needs, const std::string& why) {
  fail(ErrorKind::data, "{} {} does not fit --model {}: {}{}{}", spec.flag(), spec.text(), needs.model, why,
       needs.key_fields > 0 ? "; it reads " : "", keyed_data_for(needs));
}

std::string keyed_data_for(const DataNeeds& needs) {
  if (needs.key_fields == 0) return "";
  if (needs.target_values > 0) return "pairs:FILE";
  if (!needs.targets) return "skip-gram:FILE";
  const bool sides = needs.key_fields == 2 && needs.input_cols == 0 && needs.key_bits == 64;
  return sides ? "debian:DIR" : "criteo-like or criteo:FILE";
}

const std::string& path_of(const Spec& spec, const char* expected) {
  if (spec.argument().empty()) fail(ErrorKind::usage, "{}: expected {}, got '{}'", spec.flag(), expected, spec.text());
  return spec.argument();
}

void register_builtin_datasets(DatasetRegistry& registry) {
  const auto add = [&](const char* name, const char* help, DataSplit (*make)(const Spec&, const DataNeeds&)) {
    registry.add(name, help, [make](const Spec& spec, const DataNeeds& needs) {
      return std::make_unique<DataSplit>(make(spec, needs));
    });
  };
  add("fashion-mnist", "70000 images of clothing, from the package dataset-fashion-mnist", make_fashion_mnist);
  add("idx", "idx:DIR: images and labels in IDX files, plain or gzip", make_idx);
  add("csv",
      "csv:FILE or csv:train=FILE,test=FILE: lines of numbers: the inputs, then the targets; ,missing=mean|zero fills",
      make_csv);
  add("text", "text:FILE: the bytes of a file as tokens", make_text);
  add("tokens", "tokens:FILE: 16-bit little-endian tokens", make_tokens);
  add("criteo-like", "criteo-like:samples=N,seed=S: generated clicks with keys, whose true probabilities are known",
      make_criteo_like_data);
  add("criteo", "criteo:FILE: the text of Criteo's data sets: a class, real inputs, hexadecimal keys, between tabs",
      make_criteo_data);
  add("debian",
      "debian:DIR: which package does this one depend on? From scripts/data; ,negatives=N (1) of a dependency",
      make_debian_data);
  add("pairs", "pairs:FILE: lines of user, item and value between tabs", make_pairs_data);
  add("skip-gram",
      "skip-gram:FILE: the words of a text and their neighbours; ,window=W (5) words at most, ,least=N (5) uses of a "
      "word, ,draws=N (1) times windows and negatives of their own",
      make_skip_gram_data);
  add("synthetic", "synthetic:samples=N,seed=S: made for the model, and learnable", make_synthetic_data);
}

DataSplit make_dataset(const DatasetRegistry& registry, const Spec& spec, const DataNeeds& needs) {
  DataSplit split = std::move(*registry.make(spec, needs));
  check(split.train != nullptr, "{} {}: its factory made no training split", spec.flag(), spec.text());
  check_fit(*split.train, spec, needs);
  if (split.test) check_fit(*split.test, spec, needs);
  return split;
}

DataSplit make_fashion_mnist(const Spec& spec, const DataNeeds& /*needs*/) {
  const std::string folder = spec.argument().empty() ? kFashionMnistFolder : spec.argument();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    fail(ErrorKind::data, "{}: no such file or folder; install the package dataset-fashion-mnist", folder);
  return load_idx(folder, 10);
}

DataSplit make_idx(const Spec& spec, const DataNeeds& needs) {
  // If there are too many classes for the model, load_idx names the label and its file.
  return load_idx(path_of(spec, "idx:DIR"), 0, needs.targets ? needs.classes : 0, needs.model);
}

DataSplit make_csv(const Spec& spec, const DataNeeds& needs) {
  if (needs.tokens) misfit(spec, needs, "its inputs are {}, {} expected", kind_of(false), kind_of(true));
  if (!needs.targets && needs.target_values == 0) misfit(spec, needs, "its samples have targets, the model reads none");
  const CsvColumns columns{needs.input_cols, needs.target_values, needs.targets ? needs.classes : 0};
  path_of(spec, kCsvForm);
  const Spec named = spec.with_free_text_as("train");
  named.allow_only({"train", "test", "missing"});
  const std::string train = named.string("train", "");
  const std::string test = named.string("test", "");
  if (train.empty()) fail(ErrorKind::usage, "{} {}: no train=FILE", spec.flag(), spec.text());
  CsvMissing missing = CsvMissing::parse(spec.flag() + " " + spec.text(), named.string("missing", "refuse"));
  DataSplit split;
  split.train = load_csv(train, columns, missing);
  if (!test.empty()) split.test = load_csv(test, columns, missing);
  split.fingerprint = fingerprint_of_both(*split.train, split.test.get());
  return split;
}

DataSplit make_text(const Spec& spec, const DataNeeds& needs) {
  return load_text(spec, needs, "text:FILE", TokenFormat::bytes);
}

DataSplit make_tokens(const Spec& spec, const DataNeeds& needs) {
  return load_text(spec, needs, "tokens:FILE", TokenFormat::u16);
}

DataSplit make_synthetic_data(const Spec& spec, const DataNeeds& needs) {
  spec.allow_only({"samples", "seed"});
  if (needs.key_fields > 0) misfit(spec, needs, "its samples have no keys, the model has tables");
  SyntheticSpec made;
  made.kind = needs.target_values > 0 ? SyntheticSpec::Kind::values
              : !needs.targets        ? SyntheticSpec::Kind::inputs
              : needs.tokens          ? SyntheticSpec::Kind::tokens
                                      : SyntheticSpec::Kind::classes;
  made.samples = spec.positive("samples", 4096);
  made.cols = needs.input_cols;
  made.classes = needs.target_values > 0 ? needs.target_values : needs.classes;
  made.seed = spec.positive("seed", needs.seed);
  DataSplit split = make_synthetic(made);
  const std::string seed = spec.string("seed", "");  // without it, the run's, which checkpoints hold by itself
  split.fingerprint = [samples = made.samples, seed] {
    return fmt::format("synthetic:samples={}{}{}", samples, seed.empty() ? "" : ",seed=", seed);
  };
  return split;
}

DataSplit make_criteo_like_data(const Spec& spec, const DataNeeds& needs) {
  spec.allow_only({"samples", "seed"});
  if (needs.key_fields == 0) misfit(spec, needs, "its samples have keys, the model has no table");
  const CriteoLikeSpec made{.samples = samples_of(spec, 4096),
                            .dense = needs.input_cols,
                            .features = needs.key_fields,
                            .seed = spec.positive("seed", needs.seed)};
  DataSplit split = make_criteo_like(made);
  const std::string seed = spec.string("seed", "");  // without it, the run's, which checkpoints hold by itself
  split.fingerprint = [samples = made.samples, seed] {
    return fmt::format("criteo-like:samples={}{}{}", samples, seed.empty() ? "" : ",seed=", seed);
  };
  return split;
}

}  // namespace psring::worker
