#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/common/proc/options/table.h>

namespace psring::options {
namespace {

/// Fields that are recorded in the job's JSON, and are no options of the table.
constexpr Option kRecorded[] = {
    // --strategy of train, --strategies of compare; --betas sets beta1 and beta2
    {.name = "strategy", .field = &JobOptions::strategy, .in_programs = InPrograms::yes},
    {.name = "beta1", .field = &JobOptions::beta1, .in_programs = InPrograms::yes},
    {.name = "beta2", .field = &JobOptions::beta2, .in_programs = InPrograms::yes},
    {.name = "run-id", .field = &JobOptions::run_id, .in_programs = InPrograms::yes},
    {.name = "out", .field = &JobOptions::out, .in_programs = InPrograms::yes},
};

std::ptrdiff_t offset_of(const Option& option) {
  const JobOptions job;
  return std::visit(
      [&](auto member) -> std::ptrdiff_t {
        if constexpr (std::same_as<decltype(member), std::monostate>)
          return -1;
        else
          return reinterpret_cast<const char*>(&(job.*member)) - reinterpret_cast<const char*>(&job);
      },
      option.field);
}

}  // namespace

std::span<const Group> groups() {
  static const std::array kGroups = {
      Group{"Training", training_options()},
      Group{"Optimizer (as in PyTorch)", optimizer_options()},
      Group{"Tables of rows", table_options()},
      Group{"Precision and memory", precision_options()},
      Group{"Checkpoints", checkpoint_options()},
      Group{"Processes and units", process_options()},
      Group{"Gradients and updates", update_options()},
      Group{"Collectives and sharding", collective_options()},
      Group{"Network", network_options()},
      Group{"Threads and devices", device_options()},
      Group{"Failures", failure_options()},
      Group{"Experiments", experiment_options()},
  };
  return kGroups;
}

const Option* find(std::string_view name) {
  for (const Group& group : groups())
    for (const Option& option : group.options)
      if (option.name == name) return &option;
  return nullptr;
}

const Option& at(std::string_view name) {
  const Option* const option = find(name);
  psring::check(option != nullptr, "the table of options has no '{}'", name);
  return *option;
}

std::span<const Option* const> recorded() {
  static const std::vector<const Option*> kRows = [] {
    std::vector<const Option*> rows;
    const auto add = [&](std::span<const Option> options) {
      for (const Option& option : options)
        if (!std::holds_alternative<std::monostate>(option.field)) rows.push_back(&option);
    };
    for (const Group& group : groups()) add(group.options);
    add(kRecorded);
    std::sort(rows.begin(), rows.end(), [](const Option* a, const Option* b) { return offset_of(*a) < offset_of(*b); });
    return rows;
  }();
  return kRows;
}

std::string_view name_of(Feature feature) {
  static constexpr std::array<std::string_view, 13> kNames = {"",
                                                              "one process",
                                                              "several processes",
                                                              "servers",
                                                              "a push of each worker",
                                                              "stale gradients",
                                                              "collectives",
                                                              "buckets",
                                                              "gathered parameters",
                                                              "parameters gathered from workers",
                                                              "copies of the model in several workers",
                                                              "shards at workers",
                                                              "compressible gradients"};
  return name_in(kNames, feature);
}

std::string json_name(const Option& option) {
  if (*option.json != '\0') return option.json;
  std::string name = option.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace psring::options
