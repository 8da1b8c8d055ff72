#include <set>

#include <catch2/catch.hpp>

#include <psring/common/base/layout.h>
#include <psring/common/base/mesh.h>

namespace psring {

TEST_CASE("ranks count the tensor axis first, then the pipeline, then the data axis") {
  const Mesh mesh{.data = 2, .tensor = 2, .pipeline = 3};
  CHECK(mesh.workers() == 12);
  CHECK(mesh.model_workers() == 6);
  for (std::size_t data = 0; data < 2; ++data)
    for (std::size_t stage = 0; stage < 3; ++stage)
      for (std::size_t tensor = 0; tensor < 2; ++tensor) {
        const JobRank rank{tensor + 2 * (stage + 3 * data)};
        CHECK(mesh.data_rank(rank) == DataRank{data});
        CHECK(mesh.stage(rank) == stage);
        CHECK(mesh.tensor_rank(rank) == tensor);
        CHECK(mesh.reports_loss(rank) == (stage == 2 && tensor == 0));
      }
}

TEST_CASE("a mesh of one axis is a line") {
  const Mesh mesh{.data = 4};
  CHECK_FALSE(mesh.divides_model());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(mesh.data_rank({rank}) == DataRank{rank});
    CHECK(mesh.reports_loss({rank}));
  }
}

TEST_CASE("the groups of every axis part the workers; members are ranked by their place on the axis") {
  const Mesh mesh{.data = 2, .tensor = 2, .pipeline = 3};
  using Axis = Mesh::Axis;
  const auto group_of = [&](Axis axis, std::size_t rank) {
    const auto numbers = mesh.group_numbers(axis);
    std::vector<std::size_t> group;
    for (std::size_t other = 0; other < numbers.size(); ++other)
      if (numbers[other] == numbers[rank]) group.push_back(other);
    return group;
  };
  CHECK(group_of(Axis::tensor, 3) == std::vector<std::size_t>{2, 3});
  CHECK(group_of(Axis::pipeline, 3) == std::vector<std::size_t>{1, 3, 5});
  CHECK(group_of(Axis::data, 3) == std::vector<std::size_t>{3, 9});
  CHECK(group_of(Axis::model, 3) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
  CHECK(group_of(Axis::model, 9) == std::vector<std::size_t>{6, 7, 8, 9, 10, 11});
}

TEST_CASE("runs of a slice: rows, columns, several ranges of columns") {
  const TensorSpec whole{"w", {4, 6}, {}};
  CHECK(runs_of(whole, {3, 20}).size() == 1);
  const auto runs = [](std::size_t axis, std::vector<Range> ranges, std::vector<std::size_t> shape, Range range) {
    const TensorSpec spec{"w", std::move(shape), {}, TensorSlice{{4, 6}, axis, std::move(ranges)}};
    std::vector<std::size_t> indices;
    std::size_t next = range.begin;
    for (const Run& run : runs_of(spec, range)) {
      CHECK(run.begin == next);
      next += run.size;
      for (std::size_t i = 0; i < run.size; ++i) indices.push_back(run.whole_begin + i);
    }
    CHECK(next == range.end);
    return indices;
  };
  CHECK(runs(0, {{1, 3}}, {2, 6}, {0, 12}) == std::vector<std::size_t>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17});
  CHECK(runs(1, {{2, 4}}, {4, 2}, {0, 8}) == std::vector<std::size_t>{2, 3, 8, 9, 14, 15, 20, 21});
  CHECK(runs(1, {{1, 2}, {3, 4}, {5, 6}}, {4, 3}, {1, 8}) == std::vector<std::size_t>{3, 5, 7, 9, 11, 13, 15});
}

TEST_CASE("a slice begins with its part of the numbers that the whole tensor begins with") {
  const Init normal{Init::Kind::normal, 0.5F};
  const Layout whole = make_layout({{"u", {{{"w", {4, 6}, normal}, 7}}}}, 1);
  std::vector<float> all(whole.units[0].elements);
  initialise(whole.units[0], {0, all.size()}, 3, all);
  const TensorSpec columns{"w", {4, 3}, normal, TensorSlice{{4, 6}, 1, {{1, 2}, {4, 6}}}};
  const Layout part = make_layout({{"u", {{columns, 7}}}}, 1);
  std::vector<float> own(part.units[0].elements);
  initialise(part.units[0], {0, own.size()}, 3, own);
  const std::size_t picked[] = {1, 4, 5};
  for (std::size_t row = 0; row < 4; ++row)
    for (std::size_t col = 0; col < 3; ++col) CHECK(own[row * 3 + col] == all[row * 6 + picked[col]]);
  for (std::size_t i = 12; i < own.size(); ++i) CHECK(own[i] == 0);
}

}  // namespace psring
