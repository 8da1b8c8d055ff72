#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/data/idx.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/data/picked_samples.h>
#include <psring/worker/data/sampler.h>
#include <psring/worker/data/synthetic.h>
#include <psring/worker/data/text.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using psring::test::read_file;
using psring::test::TemporaryFolder;
using psring::test::write_file;

namespace {

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  FAIL("no error was thrown");
  throw std::logic_error("unreachable");
}

/// Expects a data error of one line that holds both texts.
template <class Call>
void refuses(Call&& call, const std::string& file, const std::string& why) {
  const Error e = error_of(call);
  CHECK(e.kind() == ErrorKind::data);
  CHECK_THAT(e.what(), Contains(file) && Contains(why) && !Contains("\n"));
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes += static_cast<char>(i % 256);
  return bytes;
}

std::string labels(const std::vector<int>& values) {
  std::string bytes = big_endian(0x801) + big_endian(static_cast<std::uint32_t>(values.size()));
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

std::string gzip(const std::string& bytes, const std::string& path) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return read_file(path);
}

/// A folder with 4 training and 2 test images of 2 x 3 pixels.
struct IdxFolder : TemporaryFolder {
  IdxFolder() {
    write_file(train_images, images(4, 2, 3));
    write_file(train_labels, labels({2, 0, 1, 2}));
    write_file(test_images, images(2, 2, 3));
    write_file(test_labels, labels({1, 2}));
  }
  std::string train_images = file("train-images-idx3-ubyte");
  std::string train_labels = file("train-labels-idx1-ubyte");
  std::string test_images = file("t10k-images-idx3-ubyte");
  std::string test_labels = file("t10k-labels-idx1-ubyte");
};

struct Sample {
  std::vector<float> input;
  std::vector<std::int32_t> targets;
  std::vector<float> values = {};
  friend bool operator==(const Sample&, const Sample&) = default;
};

Sample sample(const Dataset& data, std::size_t index) {
  Sample s{std::vector<float>(data.input_cols()), std::vector<std::int32_t>(data.targets_per_sample()),
           std::vector<float>(data.target_values())};
  data.read(index, {s.input, s.targets, s.values});
  return s;
}

Spec spec(const std::string& text) { return Spec::parse("--data", text); }

DataSplit make(const std::string& text, const DataNeeds& needs) {
  DatasetRegistry registry;
  register_builtin_datasets(registry);
  return make_dataset(registry, spec(text), needs);
}

}  // namespace

TEST_CASE("Fashion-MNIST is read whole") {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    std::puts("SKIPPED: the package dataset-fashion-mnist is not installed");
    return;
  }
  const DataSplit split = make("fashion-mnist", {.input_cols = 784, .classes = 10, .model = "mlp:784-10"});
  CHECK(split.train->size() == 60000);
  CHECK(split.test->size() == 10000);
  CHECK(split.train->classes() == 10);
  std::vector<std::int32_t> first;
  for (std::size_t i = 0; i < 5; ++i) first.push_back(sample(*split.train, i).targets[0]);
  CHECK(first == std::vector<std::int32_t>{9, 0, 0, 3, 0});
  CHECK(sample(*split.test, 0).targets[0] == 9);

  std::map<std::int32_t, int> histogram;
  float least = 1;
  float most = 0;
  double sum = 0;
  for (std::size_t i = 0; i < split.train->size(); ++i) {
    const Sample s = sample(*split.train, i);
    ++histogram[s.targets[0]];
    least = std::min(least, *std::min_element(s.input.begin(), s.input.end()));
    most = std::max(most, *std::max_element(s.input.begin(), s.input.end()));
    sum += std::accumulate(s.input.begin(), s.input.end(), 0.0);
  }
  CHECK(least == 0);
  CHECK(most == 1);
  CHECK(sum / (60000.0 * 784) == Approx(0.2860).margin(0.0001));  // the mean that everybody normalises with
  CHECK(histogram.size() == 10);
  for (const auto& [label, count] : histogram) CHECK(count == 6000);
}

TEST_CASE("IDX files are read, plain or compressed") {
  IdxFolder folder;
  const DataSplit plain = load_idx(folder.path(), 0);
  CHECK(plain.train->size() == 4);
  CHECK(plain.train->input_cols() == 6);
  CHECK(plain.train->classes() == 3);
  CHECK(plain.test->size() == 2);
  CHECK(sample(*plain.train, 3) ==
        Sample{{18 / 255.F, 19 / 255.F, 20 / 255.F, 21 / 255.F, 22 / 255.F, 23 / 255.F}, {2}});

  for (const std::string& file : {folder.train_images, folder.train_labels, folder.test_images, folder.test_labels}) {
    gzip(read_file(file), file + ".gz");
    std::filesystem::remove(file);
  }
  const DataSplit zipped = load_idx(folder.path(), 3);
  for (std::size_t i = 0; i < 4; ++i) CHECK(sample(*zipped.train, i) == sample(*plain.train, i));

  gzip(labels({0, 0, 0, 0}), folder.train_labels);  // the content decides, not the name
  CHECK(sample(*load_idx(folder.path(), 3).train, 3).targets[0] == 0);
}

TEST_CASE("bad IDX files are refused by name") {
  IdxFolder folder;
  const auto load = [&] { load_idx(folder.path(), 0); };
  SECTION("missing") {
    std::filesystem::remove(folder.test_images);
    refuses(load, "t10k-images-idx3-ubyte", "no such file");
  }
  SECTION("a folder where a file belongs") {
    std::filesystem::remove(folder.train_labels);
    std::filesystem::create_directory(folder.train_labels);
    refuses(load, folder.train_labels, "not a regular file");
  }
  SECTION("a pipe that nobody writes") {
    std::filesystem::remove(folder.train_labels);
    REQUIRE(::mkfifo(folder.train_labels.c_str(), 0600) == 0);
    refuses(load, folder.train_labels, "not a regular file");
  }
  SECTION("wrong magic") {
    write_file(folder.train_labels, images(4, 1, 1));
    refuses(load, folder.train_labels, "starts with 00000803, expected 00000801");
  }
  SECTION("truncated anywhere") {
    const std::string whole = read_file(folder.train_images);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      write_file(folder.train_images, whole.substr(0, n));
      refuses(load, folder.train_images, "truncated");
    }
  }
  SECTION("truncated anywhere, compressed") {
    const std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      write_file(folder.train_images, whole.substr(0, n));
      refuses(load, folder.train_images, "");
    }
  }
  SECTION("corrupt compression") {
    std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    for (const std::size_t at : {whole.size() / 2, whole.size() - 6}) {  // the data, the checksum
      std::string bad = whole;
      bad[at] = static_cast<char>(~bad[at]);
      write_file(folder.train_images, bad);
      refuses(load, folder.train_images, "");
    }
  }
  SECTION("any bit flipped, compressed: the same images, or an error") {
    const DataSplit good = load_idx(folder.path(), 0);
    const std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    int refused = 0;
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string bad = whole;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      write_file(folder.train_images, bad);
      try {
        const DataSplit split = load_idx(folder.path(), 0);
        for (std::size_t i = 0; i < 4; ++i) REQUIRE(sample(*split.train, i) == sample(*good.train, i));
      } catch (const Error& e) {
        REQUIRE(e.kind() == ErrorKind::data);
        ++refused;
      }
    }
    CHECK(refused > static_cast<int>(whole.size() - 18) * 8);  // all but what the 18 framing bytes leave open
  }
  SECTION("trailing bytes") {
    write_file(folder.train_labels, labels({2, 0, 1, 2}) + "x");
    refuses(load, folder.train_labels, "trailing");
    gzip(labels({2, 0, 1, 2}) + "x", folder.train_labels);
    refuses(load, folder.train_labels, "trailing");
  }
  SECTION("counts that differ") {
    write_file(folder.train_labels, labels({2, 0, 1}));
    refuses(load, folder.train_labels, "3 labels for the 4 images");
  }
  SECTION("labels out of range") {
    write_file(folder.test_labels, labels({1, 3}));
    refuses(load, folder.test_labels, "label 3 of sample 1 is not below 3");
    refuses([&] { load_idx(folder.path(), 2); }, folder.train_labels, "label 2 of sample 0");
    refuses([&] { load_idx(folder.path(), 0, 2, "m"); }, folder.train_labels,
            "label 2 of sample 0 does not fit --model m, whose 2 classes are 0 to 1");
  }
  SECTION("test images of another size") {
    write_file(folder.test_images, images(2, 3, 3));
    refuses(load, folder.test_images, "9 pixels");
  }
  SECTION("no samples") {
    write_file(folder.train_images, images(0, 2, 3));
    refuses(load, folder.train_images, "no samples");
  }
  SECTION("absurd claims, refused before memory is taken") {
    for (const std::uint32_t extent : {1U << 16, 1U << 31, 0xFFFFFFFFU}) {
      const std::string claim = big_endian(0x803) + big_endian(extent) + big_endian(extent) + big_endian(extent);
      write_file(folder.train_images, claim);
      refuses(load, folder.train_images, "claims");
      gzip(claim, folder.train_images);
      refuses(load, folder.train_images, "claims");
    }
  }
}

TEST_CASE("a missing data set says what to install") {
  refuses([] { make_fashion_mnist(spec("fashion-mnist:/no/such/folder"), {}); }, "/no/such/folder",
          "install the package dataset-fashion-mnist");
}

TEST_CASE("texts are cut into samples, the last twentieth held out") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  const std::string path = write_file(folder.file("text"), text);
  const auto token = [&](std::size_t i) { return std::int32_t{static_cast<std::uint8_t>(text[i])}; };

  const DataSplit split = load_tokens(path, TokenFormat::bytes, 4, 256);
  CHECK(split.train->size() == 47);  // floor(199 / 4) = 49, of them 2 held out
  REQUIRE(split.test);
  CHECK(split.test->size() == 2);
  CHECK(split.train->tokens());
  CHECK(split.train->classes() == 256);
  for (std::size_t i = 0; i < 49; ++i) {
    const Sample s = i < 47 ? sample(*split.train, i) : sample(*split.test, i - 47);
    for (std::size_t j = 0; j < 4; ++j) {
      CHECK(s.input[j] == static_cast<float>(token(i * 4 + j)));
      CHECK(s.targets[j] == token(i * 4 + j + 1));
    }
  }
  CHECK(load_tokens(path, TokenFormat::bytes, 10, 256).test == nullptr);  // 19 samples
  CHECK(load_tokens(path, TokenFormat::bytes, 199, 256).train->size() == 1);
  refuses([&] { load_tokens(path, TokenFormat::bytes, 200, 256); }, path, "too short");
  refuses([&] { load_tokens(write_file(folder.file("none"), ""), TokenFormat::bytes, 1, 256); }, "none", "too short");
  refuses([&] { load_tokens(folder.file("absent"), TokenFormat::bytes, 1, 256); }, "absent", "no such file");
  refuses([&] { load_tokens(folder.path(), TokenFormat::bytes, 1, 256); }, folder.path(), "not a regular file");
  refuses([&] { load_tokens(path, TokenFormat::bytes, 4, 200); }, path, "token 203 at position 29");
}

TEST_CASE("a context longer than one read is whole") {
  TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 30000; ++i) bytes += {static_cast<char>(i % 256), static_cast<char>(i / 256)};
  const DataSplit split = load_tokens(write_file(folder.file("long"), bytes), TokenFormat::u16, 29999, 50257);
  const Sample s = sample(*split.train, 0);
  bool ascending = true;
  for (int i = 0; i < 29999; ++i) ascending = ascending && s.input[i] == static_cast<float>(i) && s.targets[i] == i + 1;
  CHECK(ascending);
}

TEST_CASE("16-bit tokens are held against the vocabulary") {
  TemporaryFolder folder;
  const std::string path = write_file(folder.file("tokens"), std::string("\1\0\2\0\3\1\4\0\xFF\xFF", 10));
  const DataSplit split = load_tokens(path, TokenFormat::u16, 2, 65536);
  CHECK(split.train->size() == 2);
  CHECK(sample(*split.train, 1) == Sample{{259, 4}, {4, 65535}});
  refuses([&] { load_tokens(path, TokenFormat::u16, 2, 65535); }, path, "token 65535 at position 4");
  refuses([&] { load_tokens(path, TokenFormat::u16, 2, 259); }, path, "token 259 at position 2");
  refuses([&] { load_tokens(write_file(path, "abc"), TokenFormat::u16, 1, 65536); }, path, "3 bytes");

  write_file(path, "");  // it shrinks while it is open
  refuses([&] { sample(*split.train, 0); }, path, "truncated");
}

TEST_CASE("synthetic classes follow a linear teacher") {
  const SyntheticSpec wanted{SyntheticSpec::Kind::classes, 3000, 12, 4, 7};
  const DataSplit split = make_synthetic(wanted);
  CHECK(split.test->size() == 300);
  CHECK(split.train->classes() == 4);
  // A perceptron learns it from the training split and holds on the test split.
  std::vector<double> w(12 * 4);
  const auto guess = [&](const Sample& s) {
    std::vector<double> score(4);
    for (std::size_t j = 0; j < 12; ++j)
      for (std::size_t c = 0; c < 4; ++c) score[c] += s.input[j] * w[j * 4 + c];
    return static_cast<std::int32_t>(std::max_element(score.begin(), score.end()) - score.begin());
  };
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (std::size_t i = 0; i < 3000; ++i) {
      const Sample s = sample(*split.train, i);
      const std::int32_t c = guess(s);
      if (c == s.targets[0]) continue;
      for (std::size_t j = 0; j < 12; ++j) {
        w[j * 4 + s.targets[0]] += s.input[j];
        w[j * 4 + c] -= s.input[j];
      }
    }
  }
  int correct = 0;
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < 300; ++i) {
    const Sample s = sample(*split.test, i);
    correct += guess(s) == s.targets[0];
    seen.insert(s.targets[0]);
    CHECK(std::all_of(s.input.begin(), s.input.end(), [](float x) { return x >= -1 && x < 1; }));
  }
  CHECK(seen.size() == 4);
  CHECK(correct > 270);
  CHECK(sample(*split.train, 5) == sample(*make_synthetic(wanted).train, 5));
  SyntheticSpec other = wanted;
  other.seed = 8;
  CHECK_FALSE(sample(*split.train, 5) == sample(*make_synthetic(other).train, 5));
}

TEST_CASE("synthetic tokens mostly have one successor") {
  const DataSplit split = make_synthetic({SyntheticSpec::Kind::tokens, 500, 32, 16, 3});
  CHECK(split.train->tokens());
  std::map<std::pair<int, int>, int> pairs;
  for (std::size_t i = 0; i < 500; ++i) {
    const Sample s = sample(*split.train, i);
    for (std::size_t j = 0; j < 32; ++j) {
      REQUIRE((s.targets[j] >= 0 && s.targets[j] < 16));
      if (j > 0) CHECK(s.input[j] == static_cast<float>(s.targets[j - 1]));
      ++pairs[{static_cast<int>(s.input[j]), s.targets[j]}];
    }
  }
  int likely = 0;
  for (int token = 0; token < 16; ++token) {
    int most = 0;
    for (int next = 0; next < 16; ++next) most = std::max(most, pairs[{token, next}]);
    likely += most;
  }
  CHECK(likely / (500.0 * 32) == Approx(0.75 + 0.25 / 16).margin(0.02));
}

TEST_CASE("synthetic inputs without targets are normal") {
  const DataSplit split = make_synthetic({SyntheticSpec::Kind::inputs, 200, 100, 0, 3});
  CHECK(split.train->targets_per_sample() == 0);
  double square = 0;
  for (std::size_t i = 0; i < 200; ++i)
    for (const float x : sample(*split.train, i).input) square += double{x} * x;
  CHECK(square / 20000 == Approx(1).margin(0.05));
  using Kind = SyntheticSpec::Kind;
  for (const SyntheticSpec& big :
       {SyntheticSpec{Kind::inputs, 1U << 30, 784, 0, 1}, SyntheticSpec{Kind::inputs, SIZE_MAX, SIZE_MAX, 0, 1},
        SyntheticSpec{Kind::classes, 1, 1U << 16, 1U << 16, 1},
        SyntheticSpec{Kind::tokens, 1, 8, std::size_t{1} << 25, 1}})
    CHECK(error_of([&] { make_synthetic(big); }).kind() == ErrorKind::usage);
}

TEST_CASE("data that do not fit the model name both flags") {
  IdxFolder folder;
  const std::string idx = "idx:" + folder.path();
  const DataNeeds fits{.input_cols = 6, .classes = 3, .model = "mlp:6-3"};
  CHECK(make(idx, fits).train->size() == 4);
  const auto misfit = [&](DataNeeds needs, const std::string& why) {
    needs.model = "some-model";
    const Error e = error_of([&] { make(idx, needs); });
    CHECK(e.kind() == ErrorKind::data);
    CHECK_THAT(e.what(), Contains("--data idx:") && Contains("--model some-model") && Contains(why));
  };
  misfit({.input_cols = 100, .classes = 3}, "6 inputs a sample, 100 expected");
  refuses([&] { make(idx, {.input_cols = 6, .classes = 2, .model = "mlp:6-2"}); }, folder.train_labels,
          "label 2 of sample 0 does not fit --model mlp:6-2, whose 2 classes are 0 to 1");
  misfit({.input_cols = 6, .rows_per_sample = 6, .classes = 3}, "1 targets a sample, 6 expected");
  misfit({.input_cols = 6, .classes = 3, .tokens = true}, "real numbers, tokens expected");
  CHECK(make(idx, {.input_cols = 6, .targets = false}).train->size() == 4);
  CHECK(error_of([] { make("idx", {}); }).kind() == ErrorKind::usage);

  const std::string text = "text:" + write_file(folder.file("text"), std::string(100, 'a'));
  refuses([&] { make(text, fits); }, "--model mlp:6-3", "tokens, real numbers expected");
  const DataNeeds gpt{.input_cols = 8, .rows_per_sample = 8, .classes = 256, .tokens = true};
  CHECK(make(text, gpt).train->size() == 12);
}

TEST_CASE("the built-in data sets register by name") {
  const DataSplit classes = make("synthetic:samples=50,seed=3", {.input_cols = 9, .classes = 5});
  CHECK(classes.train->size() == 50);
  CHECK(classes.test->size() == 5);
  const DataNeeds gpt{.input_cols = 8, .rows_per_sample = 8, .classes = 40, .tokens = true};
  CHECK(make("synthetic", gpt).train->targets_per_sample() == 8);
  CHECK(make("synthetic:samples=3", {.input_cols = 9, .targets = false}).train->targets_per_sample() == 0);
  CHECK_THROWS_WITH(make("synthetic:sample=3", gpt), Contains("'sample'"));
  CHECK_THROWS_WITH(
      make("mnist", gpt),
      Contains("--data") && Contains("csv, debian, fashion-mnist, idx, pairs, skip-gram, synthetic, text, tokens"));

  DatasetRegistry registry;  // a user's own stands beside them
  register_builtin_datasets(registry);
  registry.add("empty", "", [](const Spec&, const DataNeeds&) { return std::make_unique<DataSplit>(); });
  CHECK(error_of([&] { make_dataset(registry, spec("empty"), gpt); }).kind() == ErrorKind::bug);
}

TEST_CASE("an epoch covers every sample, workers apart but for the padding") {
  for (const std::size_t size : {1, 2, 7, 60, 61}) {
    for (const std::size_t workers : {1, 2, 3, 5}) {
      for (const bool shuffle : {false, true}) {
        Sampler sampler(size, 4 * workers, workers, 7, shuffle);
        sampler.begin_epoch(2);
        const std::size_t each = (size + workers - 1) / workers;
        std::map<std::uint32_t, std::size_t> times;
        for (std::size_t worker = 0; worker < workers; ++worker) {
          std::vector<std::uint32_t> list;
          for (std::size_t b = 0; b < sampler.batches(); ++b) {
            const auto batch = sampler.batch(worker, b);
            CHECK(batch.size() == std::min<std::size_t>(4, each - b * 4));
            list.insert(list.end(), batch.begin(), batch.end());
          }
          CHECK(list.size() == each);
          for (std::size_t k = 0; k < list.size(); ++k) {
            ++times[list[k]];
            if (!shuffle) CHECK(list[k] == (worker + k * workers) % size);
          }
        }
        CHECK(times.size() == size);  // all of them, and beyond once only what pads
        CHECK(times.rbegin()->first == size - 1);
        std::size_t extra = 0;
        for (const auto& [index, count] : times) extra += count - 1;
        CHECK(extra == each * workers - size);
        std::size_t read = 0;
        std::set<std::size_t> evaluated;
        for (std::size_t worker = 0; worker < workers; ++worker)
          for (std::size_t k = 0; k < evaluation_count(size, worker, workers); ++k, ++read)
            evaluated.insert(evaluation_sample(k, worker, workers));
        CHECK((read == size && evaluated.size() == size && *evaluated.rbegin() == size - 1));
      }
    }
  }
}

TEST_CASE("the first samples of a data set are a data set") {
  struct Numbers final : Dataset {
    std::size_t size() const override { return 5; }
    std::size_t input_cols() const override { return 1; }
    std::size_t targets_per_sample() const override { return 1; }
    std::size_t classes() const override { return 9; }
    bool tokens() const override { return false; }
    void read(std::size_t index, const SampleMemory& to) const override {
      to.input[0] = static_cast<float>(index);
      to.classes[0] = static_cast<std::int32_t>(index);
    }
  };
  const auto first = first_samples(std::make_unique<Numbers>(), 3);
  CHECK(first->size() == 3);
  CHECK(first->classes() == 9);
  float input = 0;
  std::int32_t target = 0;
  first->read(2, {{&input, 1}, {&target, 1}});
  CHECK((input == 2 && target == 2));
  CHECK_THROWS(first->read(3, {{&input, 1}, {&target, 1}}));
  CHECK_THROWS(first_samples(std::make_unique<Numbers>(), 6));
}

TEST_CASE("the order depends on seed and epoch alone") {
  const auto order = [](std::uint64_t seed, std::uint32_t epoch) {
    Sampler sampler(1000, 1000, 1, seed, true);
    sampler.begin_epoch(epoch + 1);
    sampler.begin_epoch(epoch);
    const auto list = sampler.batch(0, 0);
    return std::vector(list.begin(), list.end());
  };
  CHECK(order(7, 0) == order(7, 0));
  CHECK(order(7, 0) != order(7, 1));
  CHECK(order(7, 0) != order(8, 0));
  CHECK(order(7, 0) != order(7 + (std::uint64_t{1} << 32), 0));
  // The permutation is documented, so that others can reproduce it: it must not change.
  const auto first = permutation(10, CounterRng({.seed = 7, .purpose = Purpose::shuffle, .step = 1}));
  CHECK(first == std::vector<std::uint32_t>{0, 8, 2, 9, 4, 3, 1, 7, 6, 5});
}

TEST_CASE("a batch of n workers is one worker's batch at the global size") {
  for (const std::size_t workers : {2, 3, 5}) {
    Sampler one(60, 4 * workers, 1, 7, true);
    one.begin_epoch(4);
    Sampler many(60, 4 * workers, workers, 7, true);
    many.begin_epoch(4);
    for (std::size_t b = 0; b < many.batches(); ++b) {
      std::multiset<std::uint32_t> together;
      for (std::size_t worker = 0; worker < workers; ++worker)
        for (const std::uint32_t index : many.batch(worker, b)) together.insert(index);
      const auto batch = one.batch(0, b);
      CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
    }
  }
}

TEST_CASE("without padding an epoch has every sample once, and a batch of n workers is one worker's to the end") {
  for (const std::size_t size : {1, 2, 7, 36, 37, 60, 61}) {
    for (const std::size_t workers : {1, 2, 3, 5}) {
      Sampler one(size, 4 * workers, 1, 7, true);
      one.begin_epoch(4);
      Sampler many(size, 4 * workers, workers, 7, true, Sampler::Padding::none);
      many.begin_epoch(4);
      CHECK(many.batches() == one.batches());
      for (std::size_t b = 0; b < many.batches(); ++b) {
        std::multiset<std::uint32_t> together;
        for (std::size_t worker = 0; worker < workers; ++worker) {
          const auto batch = many.batch(worker, b);
          CHECK(batch.size() <= many.batch(0, b).size());
          together.insert(batch.begin(), batch.end());
        }
        const auto batch = one.batch(0, b);
        CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
        CHECK(many.mean_batch_size(b) == static_cast<double>(batch.size()) / static_cast<double>(workers));
      }
    }
  }
  Sampler uneven(37, 6, 3, 7, true, Sampler::Padding::none);
  uneven.begin_epoch(0);
  CHECK(uneven.batch(0, 6).size() == 1);
  CHECK(uneven.batch(1, 6).empty());
  CHECK(uneven.batch(2, 5).size() == 2);
}

TEST_CASE("a global batch that workers cannot share evenly is the same samples all the same") {
  for (const std::size_t size : {1, 15, 16, 17, 60, 61}) {
    Sampler one(size, 16, 1, 7, true);
    one.begin_epoch(4);
    Sampler uneven(size, 16, 3, 7, true);
    uneven.begin_epoch(4);
    CHECK(uneven.batches() == one.batches());
    for (std::size_t b = 0; b < uneven.batches(); ++b) {
      std::multiset<std::uint32_t> together;
      for (std::size_t worker = 0; worker < 3; ++worker) {
        const auto batch = uneven.batch(worker, b);
        CHECK(uneven.batch(0, b).size() - batch.size() <= 1);
        together.insert(batch.begin(), batch.end());
      }
      const auto batch = one.batch(0, b);
      CHECK(together == std::multiset<std::uint32_t>(batch.begin(), batch.end()));
    }
  }
}

TEST_CASE("the permutation is unbiased") {
  // All 24 orders of 4 by 24000 draws: chi-square with 23 degrees of freedom, 99.9 % below 49.7.
  std::map<std::vector<std::uint32_t>, int> counts;
  for (std::uint32_t e = 0; e < 24000; ++e)
    ++counts[permutation(4, CounterRng({.seed = 1, .purpose = Purpose::shuffle, .step = e}))];
  CHECK(counts.size() == 24);
  double chi = 0;
  for (const auto& [order, count] : counts) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi < 49.7);
}

TEST_CASE("a sampler refuses what it cannot do") {
  CHECK(error_of([] { Sampler(0, 1, 1, 7, true); }).kind() == ErrorKind::data);
  CHECK(error_of([] { Sampler(std::size_t{1} << 33, 1, 1, 7, true); }).kind() == ErrorKind::data);
  CHECK_THROWS_AS(Sampler(10, 0, 2, 7, true), Error);
  CHECK_THROWS_AS(Sampler(10, 5, 0, 7, true), Error);
  Sampler sampler(10, 10, 2, 7, true);
  CHECK_THROWS_AS(sampler.batch(0, 0), Error);  // no epoch was begun
  sampler.begin_epoch(0);
  CHECK_THROWS_AS(sampler.batch(0, 1), Error);
  CHECK_THROWS_AS(sampler.batch(2, 0), Error);
}

TEST_CASE("a file takes its name when it is whole") {
  TemporaryFolder folder;
  const std::string path = write_file(folder.file("f"), "old");
  const auto bytes = std::as_bytes(std::span("new", 3));
  {
    OutputFile lost(path);
    lost.write(bytes);
    CHECK(read_file(path) == "old");
  }
  CHECK(read_file(path) == "old");
  OutputFile kept(path);
  kept.write(bytes);
  kept.commit();
  CHECK(read_file(path) == "new");
  CHECK_THROWS_AS(kept.write(bytes), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  refuses([&] { OutputFile(folder.file("no/such/f")); }, "no/such/f", "cannot create");
}

TEST_CASE("a link or a pipe stays one when a file is written there") {
  TemporaryFolder folder;
  const auto bytes = std::as_bytes(std::span("new", 3));
  write_file(folder.file("target"), "a longer old text");
  std::filesystem::create_symlink("target", folder.file("link"));
  const std::string pipe = folder.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto received = [&] {
    std::string text(16, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader.get(), text.data(), text.size()))));
    return text;
  };

  write_whole(folder.file("link"), "new");
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(read_file(folder.file("target")) == "new");
  write_whole(pipe, "whole");
  CHECK(received() == "whole");
  OutputFile out(pipe);
  out.write(bytes);
  out.commit();
  CHECK(received() == "new");
  OutputFile(pipe).write(bytes);  // not committed
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("a CSV file's lines are inputs, then targets") {
  const test::TemporaryFolder folder;
  const DataNeeds real{.input_cols = 2, .classes = 0, .targets = false, .target_values = 1, .model = "m"};
  const std::string file = test::write_file(folder.file("train.csv"), "x, y,target\n1, +2.5 ,-3e-1\r\n\n0.1,0,4\n");
  const DataSplit split = make("csv:" + file, real);
  REQUIRE(split.train->size() == 2);
  CHECK(split.test == nullptr);
  CHECK(sample(*split.train, 0).input == std::vector<float>{1, 2.5F});
  CHECK(sample(*split.train, 0).values == std::vector<float>{-0.3F});
  CHECK(sample(*split.train, 1).values == std::vector<float>{4});

  const DataNeeds classes{.input_cols = 1, .classes = 3, .model = "m"};
  const std::string named = test::write_file(folder.file("classes.csv"), "0.5,2\n0.25,0");
  const DataSplit both = make("csv:train=" + named + ",test=" + named, classes);
  CHECK(sample(*both.test, 0).targets == std::vector<std::int32_t>{2});
  CHECK(both.train->classes() == 3);
}

TEST_CASE("a CSV file's first row is a sample if it has a number") {
  const test::TemporaryFolder folder;
  const DataNeeds real{.input_cols = 2, .classes = 0, .targets = false, .target_values = 1, .model = "m"};
  const auto first = [&](const std::string& text) {
    const DataSplit split = make("csv:" + test::write_file(folder.file("first.csv"), text), real);
    REQUIRE(split.train->size() == 2);
    return sample(*split.train, 0).input;
  };
  const std::string rest = ",2,3\n4,5,6\n";
  CHECK(first("1e-50" + rest) == std::vector<float>{0, 2});
  CHECK(first("-1e-400" + rest) == std::vector<float>{0, 2});
  CHECK(first("1e-40" + rest) == std::vector<float>{1e-40F, 2});
  CHECK(first("\xEF\xBB\xBF"
              "1" +
              rest) == std::vector<float>{1, 2});
  CHECK(first("\xEF\xBB\xBF"
              "x,y,z\r\n1,2,3\r\n4,5,6\r\n") == std::vector<float>{1, 2});
  CHECK(first("\"1\"" + rest) == std::vector<float>{1, 2});
  CHECK(first("\n\nx,\"y, or\nz\",w\n1" + rest) == std::vector<float>{1, 2});
  CHECK(first(",NA,z\n1" + rest) == std::vector<float>{1, 2});  // pandas leaves the name of its index empty
}

TEST_CASE("missing inputs of a CSV file are filled by the option, and missing targets never") {
  const test::TemporaryFolder folder;
  const DataNeeds real{.input_cols = 2, .classes = 0, .targets = false, .target_values = 1, .model = "m"};
  const std::string file = test::write_file(folder.file("holes.csv"), "?,2,3\n1,,6\n4,5,9\nNA,6,8\n");
  const std::string test = test::write_file(folder.file("test.csv"), "?,nan,3\n100,100,6\n");
  const auto input = [&](const std::string& data, std::size_t index, bool of_test = false) {
    const DataSplit split = make("csv:" + data, real);
    return sample(of_test ? *split.test : *split.train, index).input;
  };
  CHECK(input(file + ",missing=zero", 0) == std::vector<float>{0, 2});
  CHECK(input(file + ",missing=zero", 1) == std::vector<float>{1, 0});
  CHECK(input(file + ",missing=mean", 0) == std::vector<float>{2.5F, 2});
  CHECK(input("train=" + file + ",missing=mean", 1) == std::vector<float>{1, 13.0F / 3});
  // A test file is filled with the means of the training file.
  CHECK(input("train=" + file + ",test=" + test + ",missing=mean", 0, true) == std::vector<float>{2.5F, 13.0F / 3});
  CHECK_THROWS_WITH(input(file + ",missing=median", 0), Contains("missing=median: expected mean, zero or refuse"));
  CHECK_THROWS_WITH(input(file + ",train=x", 0), Contains("key 'train' stands twice"));
  CHECK_THROWS_WITH(input(file + ",missing=refuse", 0), Contains("line 1, column 1: '?'"));
  const std::string targets = test::write_file(folder.file("targets.csv"), "1,2,?\n");
  CHECK_THROWS_WITH(input(targets + ",missing=zero", 0), Contains("line 1, column 3: '?': the target is missing"));
  const std::string column = test::write_file(folder.file("column.csv"), "?,2,3\n?,3,4\n");
  CHECK_THROWS_WITH(input(column + ",missing=mean", 0),
                    Contains("column 1: missing=mean, but the column has no value"));
}

TEST_CASE("a wrong CSV file is refused, and its line is named") {
  const test::TemporaryFolder folder;
  const DataNeeds real{.input_cols = 2, .classes = 0, .targets = false, .target_values = 1, .model = "m"};
  const DataNeeds classes{.input_cols = 2, .classes = 3, .model = "m"};
  const auto refusal = [&](const std::string& text, const DataNeeds& needs) {
    const std::string file = test::write_file(folder.file("wrong.csv"), text);
    try {
      make("csv:" + file, needs);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      return std::string(error.what());
    }
    return std::string("taken");
  };
  CHECK_THAT(refusal("1,2,3\n1,2\n", real), Contains("line 2 has 2 columns, 3 expected (2 inputs, 1 targets)"));
  CHECK_THAT(refusal("1,2,3\n1,2,3,4\n", real), Contains("line 2 has 4 columns"));
  CHECK_THAT(refusal("1,2,3\n1,x,3\n", real), Contains("line 2, column 2: 'x'"));
  CHECK_THAT(refusal("1,2,\n", real), Contains("line 1, column 3: ''"));
  CHECK_THAT(refusal("1,2,inf\n", real), Contains("line 1, column 3: 'inf' is not finite"));
  CHECK_THAT(refusal("1,2,1e99\n", real), Contains("'1e99'"));
  CHECK_THAT(refusal("1,2,3\n", classes), Contains("3 is not one of the model's classes 0 to 2"));
  CHECK_THAT(refusal("1,2,0.5\n", classes), Contains("0.5 is not one of"));
  CHECK_THAT(refusal("a,b,c\n", real), Contains("has no sample"));
  CHECK_THAT(refusal("x,2,3\n", real), Contains("line 1, column 1: 'x' is not a number (a header has no numbers)"));
  CHECK_THAT(refusal("1,\"2,3\n4,5,6\n", real), Contains("line 1: a double quote is not closed"));
  for (const char* const missing : {"", "?", "NA", "n/a", "nan", "-NaN", "Null", "NONE", "\"\""}) {
    CAPTURE(missing);
    CHECK_THAT(refusal(fmt::format("a,b,c\n1,{},3\n", missing), real),
               Contains("line 2, column 2: ") && Contains("the value is missing") && Contains("missing=mean"));
    CHECK_THAT(refusal(fmt::format("1,2,{}\n", missing), real), Contains("line 1, column 3: "));
  }
  CHECK_THAT(refusal("?,?,?\n1,2,3\n", real), Contains("line 1, column 1: '?'"));
  CHECK_THAT(refusal(",,\n1,2,3\n", real), Contains("line 1, column 1: ''"));
  CHECK_THROWS_WITH(make("csv:" + folder.file("none.csv"), real), Contains("none.csv"));
  CHECK_THROWS_WITH(make("csv", real), Contains("csv:FILE"));
  CHECK_THROWS_WITH(make("csv:test=x", real), Contains("no train=FILE"));
  CHECK_THROWS_WITH(make("csv:x", {.input_cols = 2, .tokens = true, .model = "m"}), Contains("tokens expected"));
}

TEST_CASE("synthetic real targets are a function of the inputs, and lie between -1 and 1") {
  const DataNeeds real{.input_cols = 3, .classes = 0, .targets = false, .target_values = 2, .seed = 4, .model = "m"};
  const DataSplit split = make("synthetic:samples=50", real);
  const DataSplit again = make("synthetic:samples=50", real);
  std::set<float> different;
  for (std::size_t i = 0; i < 50; ++i) {
    const Sample s = sample(*split.train, i);
    CHECK(s == sample(*again.train, i));
    REQUIRE(s.values.size() == 2);
    for (const float value : s.values) CHECK(std::abs(value) <= 1);
    different.insert(s.values.begin(), s.values.end());
  }
  CHECK(different.size() > 90);
}
