// Data sets by name: the built-in ones, a user's own beside them, and whether they fit the model.
#include <memory>

#include <catch2/catch.hpp>

#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/tests/worker/data_samples.h>
#include <psring/tests/worker/idx_folder.h>
#include <psring/worker/data/make_dataset.h>
#include <psring/worker/data/picked_samples.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;
using Catch::Contains;

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
  error_of(ErrorKind::bug, [&] { make_dataset(registry, Spec::parse("--data", "empty"), gpt); });
}

TEST_CASE("data that do not fit the model name both flags") {
  IdxFolder folder;
  const std::string idx = "idx:" + folder.path();
  const DataNeeds fits{.input_cols = 6, .classes = 3, .model = "mlp:6-3"};
  CHECK(make(idx, fits).train->size() == 4);
  const auto misfit = [&](DataNeeds needs, const std::string& why) {
    needs.model = "some-model";
    const std::string error = error_of(ErrorKind::data, [&] { make(idx, needs); });
    CHECK_THAT(error, Contains("--data idx:") && Contains("--model some-model") && Contains(why));
  };
  misfit({.input_cols = 100, .classes = 3}, "6 inputs a sample, 100 expected");
  refuses([&] { make(idx, {.input_cols = 6, .classes = 2, .model = "mlp:6-2"}); }, folder.train_labels,
          "label 2 of sample 0 does not fit --model mlp:6-2, whose 2 classes are 0 to 1");
  misfit({.input_cols = 6, .rows_per_sample = 6, .classes = 3}, "1 targets a sample, 6 expected");
  misfit({.input_cols = 6, .classes = 3, .tokens = true}, "real numbers, tokens expected");
  CHECK(make(idx, {.input_cols = 6, .targets = false}).train->size() == 4);
  error_of(ErrorKind::usage, [] { make("idx", {}); });

  const std::string text = "text:" + write_file(folder.file("text"), std::string(100, 'a'));
  refuses([&] { make(text, fits); }, "--model mlp:6-3", "tokens, real numbers expected");
  const DataNeeds gpt{.input_cols = 8, .rows_per_sample = 8, .classes = 256, .tokens = true};
  CHECK(make(text, gpt).train->size() == 12);
}

TEST_CASE("the first samples of a data set are a data set") {
  struct Numbers final : Dataset {
    std::size_t size() const override { return 5; }
    std::size_t input_cols() const override { return 1; }
    std::size_t targets_per_sample() const override { return 1; }
    std::size_t classes() const override { return 9; }
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
