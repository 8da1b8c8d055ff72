// CSV files: headers, inputs and targets, values that are missing, and lines that are wrong.
#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/worker/data_samples.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;
using Catch::Contains;

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
