#include <algorithm>
#include <cstdint>
#include <string>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/flat_parameters.h>

namespace psring::worker {
namespace {

enum class Named : std::uint8_t { none, part, whole };

/// Returns which part of the unit an entry of the list names.
Named named(std::string_view entry, const FlatModel& model, std::size_t unit) {
  if (const auto number = read_number<std::size_t>(entry)) return *number == unit ? Named::whole : Named::none;
  const bool star = entry.ends_with('*');
  if (star) entry.remove_suffix(1);
  const auto begins = [&](const std::string& name) {
    return name.starts_with(entry) && (star || name.size() == entry.size() || name[entry.size()] == '.');
  };
  const auto tensors = model.tensors(unit);
  const auto matches = std::count_if(tensors.begin(), tensors.end(),
                                     [&](const TensorLayout& tensor) { return begins(tensor.spec.name); });
  if (matches == std::ssize(tensors) || (star && model.name(unit).starts_with(entry))) return Named::whole;
  if (matches > 0) return Named::part;
  return model.name(unit) == entry ? Named::whole : Named::none;
}

std::string all_names(const FlatModel& model) {
  std::string names;
  for (std::size_t unit = 0; unit < model.units(); ++unit) names += (unit == 0 ? "" : ", ") + model.name(unit);
  return names;
}

}  // namespace

std::vector<std::size_t> listed_units(const FlatModel& model, std::string_view list) {
  std::vector<bool> listed(model.units(), false);
  for (const std::string_view entry : split(list)) {
    bool found = false;
    for (std::size_t unit = 0; unit < model.units() && !entry.empty(); ++unit) {
      const Named match = named(entry, model, unit);
      if (match == Named::part)
        fail(ErrorKind::usage,
             "--freeze {}: unit '{}' contains '{}' and other tensors, and can only be frozen as a whole; the units: {}",
             list, model.name(unit), entry, all_names(model));
      if (match == Named::whole) listed[unit] = found = true;
    }
    if (!found)
      fail(ErrorKind::usage, "--freeze {}: the model has no unit '{}'; its units: {}", list, entry, all_names(model));
  }
  if (std::all_of(listed.begin(), listed.end(), [](bool each) { return each; }))
    fail(ErrorKind::usage, "--freeze {}: nothing is left to train; the model's units: {}", list, all_names(model));
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < listed.size(); ++unit)
    if (listed[unit]) units.push_back(unit);
  return units;
}

}  // namespace psring::worker
