#include <algorithm>

#include <psring/cli/plan/fitting.h>
#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/table.h>

namespace psring::cli {

using options::Feature;
using options::Need;
using options::Option;

bool has_feature(const worker::StrategyKind& kind, const JobOptions& job, Feature feature) {
  switch (feature) {
    case Feature::none:
      return true;
    case Feature::one_process:
      return kind.one_worker;
    case Feature::several_processes:
      return !kind.one_worker;
    case Feature::servers:
      return kind.has_servers();
    case Feature::own_pushes:
      return kind.servers && !kind.scatters;
    case Feature::stale_gradients:
      return parse_consistency(job.consistency).each_push_updates;
    case Feature::collectives:
      return kind.ring;
    case Feature::buckets:
      return kind.buckets;
    case Feature::gathered_parameters:
      return kind.gathers;
    case Feature::gathered_from_workers:
      return kind.ring && kind.gathers;
    case Feature::mesh:
      return (kind.ring || kind.servers) && !kind.scatters;
    case Feature::shards_at_workers:
      return kind.ring && kind.stage > 0;
    case Feature::compressed_gradients:
      return kind.compresses;
  }
  return true;
}

void Fitting::apply_to(JobOptions& job) const {
  for (const options::Group& group : options::groups())
    for (const Option& option : group.options) {
      const auto missing = std::find_if(option.needs.begin(), option.needs.end(),
                                        [&](const Need& need) { return !has_feature(kind_, job, need.feature); });
      if (missing == option.needs.end() || options::has_default(job, option)) continue;
      const std::string flag = std::string("--") + option.name;
      refuse(flag.c_str(), fmt::format("{}: strategy {} {}", options::flag_with_value(job, option, given_), strategy_,
                                       missing->reason));
      options::reset(job, option);
    }
}

void Fitting::refuse(const char* flag, const std::string& line) const {
  if (left_out_ == nullptr) throw Error(ErrorKind::usage, line);
  left_out_->emplace(flag, line);
}

}  // namespace psring::cli
