#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/tests/support/values.h>
#include <psring/worker/data/make_dataset.h>

// Data sets by name, their samples by number, and their errors.
namespace psring::test {

struct Sample {
  std::vector<float> input;
  std::vector<std::int32_t> targets;
  std::vector<float> values = {};
  friend bool operator==(const Sample&, const Sample&) = default;
};

inline Sample sample(const worker::Dataset& data, std::size_t index) {
  Sample s{std::vector<float>(data.input_cols()), std::vector<std::int32_t>(data.targets_per_sample()),
           std::vector<float>(data.target_values())};
  data.read(index, {s.input, s.targets, s.values});
  return s;
}

inline worker::DataSplit make(const std::string& text, const worker::DataNeeds& needs) {
  worker::DatasetRegistry registry;
  worker::register_builtin_datasets(registry);
  return worker::make_dataset(registry, Spec::parse("--data", text), needs);
}

/// Expects a data error of one line that holds both texts.
template <class Call>
void refuses(Call&& call, const std::string& file, const std::string& why) {
  const std::string error = error_of(ErrorKind::data, call);
  CHECK_THAT(error, Catch::Contains(file) && Catch::Contains(why) && !Catch::Contains("\n"));
}

}  // namespace psring::test
