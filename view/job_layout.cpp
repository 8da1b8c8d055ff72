#include <algorithm>
#include <cstddef>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/view/report_parts.h>
#include <psring/worker/model/flat_parameters.h>
#include <psring/worker/model/parallel/cut.h>
#include <psring/worker/servers/server_weights.h>

namespace psring::view {

std::optional<JobOptions> read_job(const Json& job) {
  try {
    return job_from_json(job.dump());
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Layout> job_layout(const JobOptions& job, const worker::Registries& registries) {
  const Spec strategy = Spec::parse("--strategy", job.strategy);
  const Spec model = Spec::parse("--model", job.model);
  if (!registries.strategies.contains(strategy.name()) || !registries.models.contains(model.name()))
    return std::nullopt;
  if (job.shard_group == "host") return std::nullopt;
  if (job.mesh().divides_model()) return std::nullopt;  // every part of the model has a layout of its own
  try {
    const auto kind = registries.strategies.make(strategy);
    const auto made = registries.models.make(model);
    worker::FlatModel flat(*made, worker::group_layers(*made, job.units));
    if (!job.freeze.empty()) flat.freeze(worker::listed_units(flat, job.freeze));
    const std::size_t among_workers = job.shard_owners().value_or(job.data_workers());
    Layout layout = flat.layout(kind->servers ? job.servers : kind->ring ? among_workers : 1);
    layout.parameter_type = parse_dtype("--precision", job.precision);
    layout.gradient_type = job.comm_dtype.empty() ? layout.parameter_type : parse_dtype("--comm-dtype", job.comm_dtype);
    layout.weights = worker::server_weights(job, *kind, layout);
    return layout;
  } catch (const Error&) {
    return std::nullopt;  // a model file that is gone, or options that this version refuses
  }
}

Json mesh_units(const JobOptions& job, const worker::Registries& registries) {
  const Spec spec = Spec::parse("--model", job.model);
  if (!registries.models.contains(spec.name())) return {};
  try {
    const auto model = registries.models.make(spec);
    const worker::FlatModel flat(*model, worker::group_layers(*model, job.units));
    const std::vector<Range> stages = worker::stages_of_job(job, *model);
    const Layout layout = flat.layout(1);
    Json units = Json::array();
    for (std::size_t unit = 0; unit < flat.units(); ++unit) {
      Json holders = Json::array();
      for (std::size_t stage = 0; stage < stages.size(); ++stage)
        if (std::ranges::any_of(flat.layers_of(unit), [&](std::size_t layer) {
              return stages[stage].contains({layer, layer + 1});
            }))
          holders.push_back(stage);
      units.push_back({{"name", flat.name(unit)}, {"elements", layout.units[unit].elements}, {"stages", holders}});
    }
    return units;
  } catch (const Error&) {
    return {};  // a model file that is gone, or options that this version refuses
  }
}

}  // namespace psring::view
