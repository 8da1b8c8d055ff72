#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/conv_net.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/gpt.h>
#include <psring/worker/model/mlp.h>
#include <psring/worker/model/parallel/cut.h>

namespace psring::worker {
namespace {

Model mlp(const std::string& widths) { return make_mlp(Spec::parse("--model", "mlp:" + widths)); }
Model gpt(const std::string& keys) { return make_gpt(Spec::parse("--model", "gpt:" + keys)); }

/// The message of the error that `call` throws; "" if it throws none.
std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("stages begin where one activation passes, with a layer that has parameters") {
  CHECK(stage_begins(mlp("8-8-8-8")) == std::vector<std::size_t>{0, 1, 2});
  CHECK(stage_begins(mlp("8-d0.1-8-d0.2-8")) == std::vector<std::size_t>{0, 3});  // dropout, linear, dropout, linear
  CHECK(stage_begins(gpt("layers=2,dim=8,heads=2,context=4,vocab=16")) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("the costliest stage costs as little as possible") {
  CHECK(cut_by_cost(mlp("8-8-8-8-8"), 2) == std::vector<Range>{{0, 2}, {2, 4}});
  CHECK(cut_by_cost(mlp("8-8-8-8-8"), 4) == std::vector<Range>{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
  CHECK(cut_by_cost(mlp("64-512-8-8-8"), 2) == std::vector<Range>{{0, 1}, {1, 4}});
  CHECK(cut_by_cost(mlp("8-8-8-512-64"), 2) == std::vector<Range>{{0, 3}, {3, 4}});
  CHECK(cut_by_cost(mlp("8-8-8"), 1) == std::vector<Range>{{0, 2}});
  CHECK_THAT(message_of([&] { cut_by_cost(mlp("8-8-8"), 3); }), Catch::Contains("can be cut into at most 2 stages"));
}

TEST_CASE("stages as they are listed") {
  const auto cut = [](const char* text, std::size_t stages) { return cut_as_listed(mlp("8-8-8-8-8-8"), stages, text); };
  CHECK(cut("0-2,3-4", 2) == std::vector<Range>{{0, 3}, {3, 5}});
  CHECK(cut("0,1-3,4", 3) == std::vector<Range>{{0, 1}, {1, 4}, {4, 5}});
  // A dropout belongs to the layer before it.
  CHECK(cut_as_listed(mlp("8-8-d0.5-8-8"), 2, "0,1-2") == std::vector<Range>{{0, 2}, {2, 4}});
  CHECK_THAT(message_of([&] { cut("0-2,3-4", 3); }), Catch::Contains("lists 2 stages, and --pipeline is 3"));
  CHECK_THAT(message_of([&] { cut("0-1,3-4", 2); }), Catch::Contains("expected a stage that begins with layer 2"));
  CHECK_THAT(message_of([&] { cut("0-2,2-4", 2); }), Catch::Contains("expected a stage that begins with layer 3"));
  CHECK_THAT(message_of([&] { cut("1-2,3-4", 2); }), Catch::Contains("expected a stage that begins with layer 0"));
  CHECK_THAT(message_of([&] { cut("0-2,3-3", 2); }), Catch::Contains("the stages end with layer 3"));
  CHECK_THAT(message_of([&] { cut("0-2,3-5", 2); }),
             Catch::Contains("layer 5: the model has 5 layers with parameters"));
  CHECK_THAT(message_of([&] { cut("0-2,4-3", 2); }), Catch::Contains("expected a stage"));
  for (const char* text : {"", "a", "0-2;3-4", "0-2,", "-1,3", "0-2,3-99999999999999999999"})
    CHECK_THAT(message_of([&] { cut(text, 2); }), Catch::Contains("--stages"));
}

TEST_CASE("a stage is a model whose input is another stage's output") {
  const Model first = take_stage(mlp("8-16-4-2"), {0, 1});
  CHECK(first.layers.size() == 1);
  CHECK(first.loss == nullptr);
  CHECK_FALSE(first.stage_input);
  const Model last = take_stage(mlp("8-16-4-2"), {1, 3});
  CHECK(last.layers.size() == 2);
  CHECK(last.loss != nullptr);
  CHECK(last.stage_input->cols == 16);
  CHECK(last.input_cols == 8);
  const Model half = take_stage(gpt("layers=1,dim=8,heads=2,context=4,vocab=16"), {1, 3});
  CHECK(half.stage_input->rows == 4);
  CHECK(half.stage_input->cols == 8);
}

TEST_CASE("a part of the flat model keeps names, ids and what is trained; a tied tensor counts once") {
  const Model model = gpt("layers=2,dim=8,heads=2,context=4,vocab=16");
  FlatModel whole(model, group_layers(model, "block"));
  const FlatModel first = whole.part({0, 3});
  const FlatModel last = whole.part({3, 6});
  CHECK(first.units() == 2);  // root, h.0
  CHECK(last.units() == 2);   // h.1, root
  CHECK(first.name(0) == "root");
  CHECK(last.name(0) == "h.1");
  CHECK(last.name(1) == "root");
  const auto find = [](const FlatModel& flat, const std::string& name) -> const TensorLayout* {
    for (std::size_t unit = 0; unit < flat.units(); ++unit)
      for (const TensorLayout& tensor : flat.tensors(unit))
        if (tensor.spec.name == name) return &tensor;
    return nullptr;
  };
  const TensorLayout* tied = find(last, "wte.weight");
  REQUIRE(tied != nullptr);
  CHECK_FALSE(tied->counted);
  CHECK(find(first, "wte.weight")->counted);
  CHECK(tied->id == find(first, "wte.weight")->id);
  CHECK(find(first, "wpe.weight") != nullptr);
  CHECK(find(last, "wpe.weight") == nullptr);
  CHECK(find(first, "ln_f.weight") == nullptr);
  CHECK(find(last, "ln_f.weight")->counted);
  std::size_t elements = 0;
  for (const FlatModel* part : {&first, &last})
    for (std::size_t unit = 0; unit < part->units(); ++unit)
      for (const TensorLayout& tensor : part->tensors(unit))
        if (tensor.counted) elements += tensor.spec.elements();
  std::size_t all = 0;
  for (std::size_t unit = 0; unit < whole.units(); ++unit)
    for (const TensorLayout& tensor : whole.tensors(unit)) all += tensor.spec.elements();
  CHECK(elements == all);
}

TEST_CASE("a stage wants the gradient of its input if something before it is trained") {
  const Model model = mlp("8-8-8-8");
  FlatModel whole(model, group_layers(model, "layer"));
  CHECK(whole.part({1, 3}).input_is_trained());
  CHECK(whole.part({1, 3}).wanted().front().dx);
  CHECK(whole.part({1, 3}).first_trained_layer() == 0);
  CHECK_FALSE(whole.part({0, 1}).input_is_trained());
  whole.freeze(std::vector<std::size_t>{0});
  CHECK_FALSE(whole.part({1, 3}).input_is_trained());
  CHECK_FALSE(whole.part({1, 3}).wanted().front().dx);
  CHECK(whole.part({0, 1}).first_trained_layer() == 1);  // nothing: there is no backward
}

}  // namespace psring::worker
