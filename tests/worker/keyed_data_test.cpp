// Data sets from files whose samples have keys: columns, splits, negatives, and errors by file, line and column.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/tests/worker/data_samples.h>
#include <psring/worker/data/keyed/every_tenth.h>
#include <psring/worker/data/keyed/keyed_data.h>
#include <psring/worker/data/keyed/tsv.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using test::error_of;
using test::make;

namespace {

const DataNeeds kClicks{.input_cols = 2, .classes = 2, .key_fields = 3, .key_bits = 56, .seed = 1, .model = "m"};
const DataNeeds kRatings{
    .classes = 0, .targets = false, .target_values = 1, .key_fields = 2, .key_bits = 56, .model = "m"};
const DataNeeds kEdges{.classes = 2, .key_fields = 2, .seed = 1, .model = "m"};
const DataNeeds kWords{.classes = 0, .targets = false, .key_fields = 5, .seed = 1, .model = "m"};

/// The keys of a sample, field by field.
std::vector<std::vector<std::uint64_t>> keys_of(const Dataset& data, std::size_t sample) {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> counts(data.key_fields().size());
  data.read_keys(sample, keys, counts);
  std::vector<std::vector<std::uint64_t>> fields;
  auto next = keys.begin();
  for (const std::uint32_t count : counts) {
    fields.emplace_back(next, next + count);
    next += count;
  }
  CHECK(next == keys.end());
  return fields;
}

struct Sample {
  std::vector<float> input;
  std::int32_t target = -1;
  float value = 0;
};

Sample sample_of(const Dataset& data, std::size_t index) {
  Sample sample{.input = std::vector<float>(data.input_cols())};
  data.read(index, {sample.input, std::span(&sample.target, data.targets_per_sample()),
                    std::span(&sample.value, data.target_values())});
  return sample;
}

std::string lines(std::size_t count, auto&& line) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += std::string(line(i)) + "\n";
  return text;
}

}  // namespace

TEST_CASE("of ten consecutive groups of samples the last is the test set") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("pairs.tsv");
  for (const std::size_t count : {10, 19, 20, 57}) {
    test::write_file(path, lines(count, [](std::size_t i) { return fmt::format("{}\t{}\t{}", i, 2 * i, i); }));
    const DataSplit split = make("pairs:" + path, kRatings);
    CAPTURE(count);
    CHECK(split.test->size() == count / 10);
    CHECK(split.train->size() == count - count / 10);
    std::size_t in_test = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Dataset& of = i % 10 == 9 ? *split.test : *split.train;
      const std::size_t index = i % 10 == 9 ? in_test++ : i - in_test;
      CHECK(keys_of(of, index) == std::vector<std::vector<std::uint64_t>>{{i}, {2 * i}});
      CHECK(sample_of(of, index).value == static_cast<float>(i));
    }
  }
}

TEST_CASE("a file in the format of Criteo's data") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("day");
  test::write_file(path,
                   "\xEF\xBB\xBF"
                   "1\t3\t-2\tff\t\t68fd1e64\r\n\r\n\n" +
                       lines(18, [](std::size_t i) { return fmt::format("0\t\t{}\t{:x}\t1\t", i, i); }) +
                       "0\t1.5\t\t\t\tffffffffffffff");
  const DataSplit split = make("criteo:" + path, kClicks);
  CHECK(split.train->size() == 18);
  CHECK(split.test->size() == 2);
  CHECK(split.train->key_fields().size() == 3);
  const Sample first = sample_of(*split.train, 0);
  CHECK(first.target == 1);
  CHECK(first.input == std::vector<float>{std::log(4.0F), 0});
  CHECK(keys_of(*split.train, 0) == std::vector<std::vector<std::uint64_t>>{{0xFF}, {}, {0x68FD1E64}});
  CHECK(keys_of(*split.train, 2) == std::vector<std::vector<std::uint64_t>>{{1}, {1}, {}});
  CHECK(keys_of(*split.test, 1) == std::vector<std::vector<std::uint64_t>>{{}, {}, {(std::uint64_t{1} << 56) - 1}});
  CHECK(sample_of(*split.test, 1).input == std::vector<float>{std::log(2.5F), 0});
  CHECK(!split.fingerprint().empty());
}

TEST_CASE("numbers are read as those of csv files, and text in UTF-16 or with endless lines is refused") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("pairs");
  test::write_file(path,
                   "1\t2\t1e-50\n1\t3\t+2\n" + lines(8, [](std::size_t i) { return fmt::format("{}\t1\t.5", i); }));
  const DataSplit split = make("pairs:" + path, kRatings);
  CHECK(sample_of(*split.train, 0).value == 0);
  CHECK(sample_of(*split.train, 1).value == 2);
  CHECK(sample_of(*split.train, 2).value == 0.5F);
  test::write_file(path,
                   "\xFF\xFE"
                   "1");
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("pairs:" + path, kRatings); }), Contains("is a text in UTF-16"));
  std::filesystem::resize_file(path, 0);
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("pairs:" + path, kRatings); }), Contains("a line has more than"));
}

TEST_CASE("what is wrong in a file is named by file, line and column") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("file");
  const auto refused = [&](const std::string& data, const DataNeeds& needs, const std::string& wrong) {
    test::write_file(path, "0\t1\t2\n\n" + wrong + "\n");
    if (data == "criteo") test::write_file(path, "0\t1\t2\t3\t4\t5\n\n" + wrong + "\n");
    return error_of(ErrorKind::data, [&] { make(data + ":" + path, needs); });
  };
  const auto place = [&](const std::string& column) { return Contains(path + ": line 3" + column + ": "); };
  CHECK_THAT(refused("criteo", kClicks, "1\t2\t3\ta\tb"), place("") && Contains("5 columns, 6 expected"));
  CHECK_THAT(refused("criteo", kClicks, "2\t2\t3\ta\tb\tc"), place(", column 1") && Contains("'2' is not 0 or 1"));
  CHECK_THAT(refused("criteo", kClicks, "1\t2\tx\ta\tb\tc"), place(", column 3") && Contains("'x' is not a number"));
  CHECK_THAT(refused("criteo", kClicks, "1\t2\tnan\ta\tb\tc"),
             place(", column 3") && Contains("'nan' is not a number"));
  CHECK_THAT(refused("pairs", kRatings, "1\t2\t1e39"), place(", column 3") && Contains("'1e39' is not finite"));
  CHECK_THAT(refused("pairs", kRatings, std::string(5000, 'x') + "\t2\t3"),
             Contains("'" + std::string(80, 'x') + "' is not a whole number"));
  CHECK_THAT(refused("criteo", kClicks, "1\t2\t3\ta\tg\tc"),
             place(", column 5") && Contains("'g' is not a hexadecimal number"));
  CHECK_THAT(refused("criteo", kClicks, "1\t2\t3\ta\tb\t100000000000000"),
             place(", column 6") && Contains("100000000000000 has more than 56 bits"));
  CHECK_THAT(refused("criteo", kClicks, "1\t2\t3\ta\tb\t10000000000000000"), place(", column 6") && Contains("bits"));
  CHECK_THAT(refused("pairs", kRatings, "1\t2"), place("") && Contains("2 columns, at least 3"));
  CHECK_THAT(refused("pairs", kRatings, "1\t-2\t3"), place(", column 2") && Contains("'-2' is not a whole number"));
  CHECK_THAT(refused("pairs", kRatings, "1\t2\t"), place(", column 3") && Contains("'' is not a number"));
  CHECK_THAT(refused("pairs", kRatings, fmt::format("{}\t2\t3", std::uint64_t{1} << 56)),
             place(", column 1") && Contains("more than 56 bits"));
  CHECK_THAT(refused("pairs", kRatings, "1\t2\t3"), Contains("2 samples, at least 10 expected"));
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("criteo:" + folder.file("none"), kClicks); }), Contains("none"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("criteo", kClicks); }), Contains("expected criteo:FILE"));
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("pairs:" + path, kClicks); }), Contains("the model reads 3"));
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("skip-gram:" + path, kRatings); }), Contains("does not fit"));
}

TEST_CASE("packages, their dependencies, and negatives by popularity") {
  test::TemporaryFolder folder;
  test::write_file(folder.file("packages.tsv"), "a\tx=1\ty=2\nb\nc\tx=1\nd\tz=3\tx=1\ty=2\ne\tw=4\n");
  std::string edges;
  for (std::size_t i = 0; i < 40; ++i) edges += i % 4 == 3 ? "b\tc\n" : i % 4 == 2 ? "a\te\n" : "a\td\n";
  test::write_file(folder.file("edges.tsv"), edges);
  const std::string dir = folder.file("");
  const DataSplit split = make("debian:" + dir + ",negatives=3", kEdges);
  CHECK(split.train->size() == 36 * 4);
  CHECK(split.test->size() == 4 * 4);
  CHECK(split.train->key_fields()[1].most == 3);
  const std::vector<std::uint64_t> a{key_of_text("x=1"), key_of_text("y=2")};
  const std::vector<std::uint64_t> c{key_of_text("x=1")};
  const std::vector<std::uint64_t> d{key_of_text("z=3"), key_of_text("x=1"), key_of_text("y=2")};
  const std::vector<std::uint64_t> e{key_of_text("w=4")};
  std::map<std::vector<std::uint64_t>, std::size_t> negatives;
  for (std::size_t i = 0; i < split.train->size(); ++i) {
    const auto keys = keys_of(*split.train, i);
    const std::size_t edge = i / 4 + i / 36;
    CHECK(sample_of(*split.train, i).target == (i % 4 == 0 ? 1 : 0));
    CHECK(keys[0] == (edge % 4 == 3 ? std::vector<std::uint64_t>() : a));
    const std::vector<std::uint64_t>& other = edge % 4 == 3 ? c : edge % 4 == 2 ? e : d;
    if (i % 4 == 0)
      CHECK(keys[1] == other);
    else if (edge % 4 == 3)
      ++negatives[keys[1]];
    else
      CHECK(keys[1] == c);  // a depends on all others that are drawn
    CHECK(keys == keys_of(*split.train, i));
  }
  REQUIRE(negatives.size() == 2);  // twice as many edges lead to d as to e
  CHECK(negatives[d] > negatives[e]);
  CHECK(split.fingerprint() != make("debian:" + dir, kEdges).fingerprint());
  const auto refused = [&](const std::string& file, const std::string& text) {
    test::write_file(folder.file(file), text);
    return error_of(ErrorKind::data, [&] { make("debian:" + dir, kEdges); });
  };
  CHECK_THAT(refused("edges.tsv", "a\tb\na\tx\n"),
             Contains("edges.tsv: line 2, column 2: ") && Contains("no package 'x'"));
  CHECK_THAT(refused("edges.tsv", "a\tb\tc\n"), Contains("edges.tsv: line 1: 3 columns, 2 expected"));
  CHECK_THAT(refused("packages.tsv", "a\na\n"), Contains("packages.tsv: line 2, column 1: package 'a' has two lines"));
}

TEST_CASE("each draw of a text has its own windows and negatives") {
  constexpr std::size_t kDraws = 3;
  test::TemporaryFolder folder;
  const std::string path = folder.file("text");
  test::write_file(path, lines(40, [](std::size_t) { return "a b c d e"; }));
  const DataSplit one = make("skip-gram:" + path, kWords);
  const DataSplit more = make("skip-gram:" + path + ",draws=3", kWords);
  for (std::size_t i = 0; i < one.train->size(); ++i) CHECK(keys_of(*more.train, i) == keys_of(*one.train, i));
  REQUIRE(more.test->size() == one.test->size());
  for (std::size_t i = 0; i < one.test->size(); ++i) CHECK(keys_of(*more.test, i) == keys_of(*one.test, i));

  // Neighbours are in every window. 38 sentences have 8 pairs of neighbours each, which come once in every draw.
  const auto neighbours = [](const Dataset& data) {
    std::vector<std::vector<std::vector<std::uint64_t>>> found;
    for (std::size_t i = 0; i < data.size(); ++i) {
      auto keys = keys_of(data, i);
      for (const auto& [word, next] : {std::pair("a", "b"), {"b", "c"}, {"c", "d"}, {"d", "e"}}) {
        const std::uint64_t x = key_of_text(word);
        const std::uint64_t y = key_of_text(next);
        if ((keys[0][0] == x && keys[1][0] == y) || (keys[0][0] == y && keys[1][0] == x)) found.push_back(keys);
      }
    }
    return found;
  };
  constexpr std::size_t kPairs = std::size_t{38} * 8;
  const auto found = neighbours(*more.train);
  REQUIRE(neighbours(*one.train).size() == kPairs);
  REQUIRE(found.size() == kDraws * kPairs);
  for (std::size_t draw = 1; draw < kDraws; ++draw) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < kPairs; ++i) {
      CHECK(found[draw * kPairs + i][0] == found[i][0]);
      CHECK(found[draw * kPairs + i][1] == found[i][1]);
      equal += found[draw * kPairs + i] == found[i];
    }
    CHECK(equal < kPairs / 4);  // one in 64: three negatives of four words, all of one probability
  }
  const std::size_t others = one.train->size() - kPairs;  // pairs in wider windows, 448 of 608 on average
  CHECK(more.train->size() != kDraws * one.train->size());
  CHECK(more.train->size() > kDraws * (kPairs + others * 3 / 4));
  CHECK(more.train->size() < kDraws * (kPairs + others * 4 / 3));
}

TEST_CASE("words and their neighbours within a sentence") {
  test::TemporaryFolder folder;
  const std::string path = folder.file("text");
  test::write_file(path, "a b c d\n" + lines(25, [](std::size_t) { return "a  b\trare"; }) + "rare\nc d e f g\n" +
                             lines(4, [](std::size_t) { return "g"; }));
  const DataSplit split = make("skip-gram:" + path + ",window=2,least=2", kWords);
  const DataSplit again = make("skip-gram:" + path + ",window=2,least=2", kWords);
  CHECK(split.train->key_fields().size() == 5);
  std::set<std::uint64_t> known;
  for (const char* word : {"a", "b", "c", "d", "g", "rare"}) known.insert(key_of_text(word));
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> pairs;
  std::map<std::uint64_t, std::size_t> negatives;
  for (std::size_t i = 0; i < split.train->size(); ++i) {
    const auto keys = keys_of(*split.train, i);
    CHECK(keys == keys_of(*again.train, i));
    ++pairs[{keys[0][0], keys[1][0]}];
    for (std::size_t k = 0; k < 5; ++k) {
      REQUIRE(keys[k].size() == 1);
      CHECK(known.contains(keys[k][0]));
      if (k < 2) continue;
      CHECK(keys[k] != keys[1]);
      ++negatives[keys[k][0]];
    }
  }
  // Lines 1 to 19 and 21 to 25 train, and c d g, whose e and f are dropped.
  const auto count = [&](const char* word, const char* context) {
    const auto found = pairs.find({key_of_text(word), key_of_text(context)});
    return found == pairs.end() ? std::size_t{0} : found->second;
  };
  CHECK(count("a", "b") == 24);
  CHECK(count("b", "a") == 24);
  CHECK(count("rare", "b") == 24);
  CHECK(count("a", "rare") > 3);  // half of them: in windows of 2
  CHECK(count("a", "rare") < 21);
  CHECK(count("c", "d") == 1);
  CHECK(count("d", "g") == 1);
  CHECK(count("a", "c") == 0);
  CHECK(negatives[key_of_text("a")] > negatives[key_of_text("d")]);
  std::set<std::uint64_t> tested;
  for (std::size_t i = 0; i < split.test->size(); ++i) tested.insert(keys_of(*split.test, i)[0][0]);
  CHECK(tested.contains(key_of_text("d")));  // line 0
  CHECK(split.test->size() >= 2 * 3 + 2 * 2);
  CHECK(split.fingerprint() == make("skip-gram:" + path + ",window=2,least=2,draws=1", kWords).fingerprint());
  CHECK(split.fingerprint() != make("skip-gram:" + path + ",window=2,least=2,draws=2", kWords).fingerprint());
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("skip-gram:" + path + ",draws=0", kWords); }),
             Contains("draws: expected a whole number > 0"));
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("skip-gram:" + path + ",least=1000", kWords); }),
             Contains("0 words occur at least 1000 times"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("criteo-like:samples=9999999999999999999", kClicks); }),
             Contains("--data criteo-like:samples=9999999999999999999: expected at most 3904515720"));
  test::write_file(path, "a b a b a b a b a b\n");
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("skip-gram:" + path, kWords); }), Contains("no sample: lines 0, 20"));
  test::write_file(path, "\n" + lines(15, [](std::size_t) { return "a b"; }));
  CHECK_THAT(error_of(ErrorKind::data, [&] { make("skip-gram:" + path, kWords); }),
             Contains("no sample of the test set: its lines 0, 20"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("skip-gram:" + path + ",window=256", kWords); }),
             Contains("a window of at most 255"));
  CHECK_THAT(error_of(ErrorKind::usage, [&] { make("skip-gram:" + path + ",draws=1001", kWords); }),
             Contains("expected at most 1000 draws"));
}
