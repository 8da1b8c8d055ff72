#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <psring/common/base/text/error.h>
#include <psring/common/proc/options/one_table.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/worker/exchange/mesh/mesh_groups.h>
#include <psring/worker/state/checkpoints.h>
#include <psring/worker/state/error_feedback.h>
#include <psring/worker/training.h>

namespace psring::worker {
namespace {

constexpr const char* kData = "data";
constexpr const char* kSamples = "training samples";
constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kUnknown = "unknown";

std::string describe_leaving(const JobOptions& job) {
  std::string rule;
  if (!job.table_ttl.empty()) rule += fmt::format("--table-ttl {} ", job.table_ttl);
  if (!job.table_rows.empty()) rule += fmt::format("--table-rows {} ", job.table_rows);
  return rule.empty() ? "no --table-ttl or --table-rows" : fmt::format("{}--table-sweep {}", rule, job.table_sweep);
}

/// Returns a fact about the tables: one text if all have the same, else "words adagrad, contexts sgd".
std::string of_tables(const TrainSetup& setup, const auto& text_of) {
  std::set<std::string> different;
  std::vector<std::string> each;
  for (const TableLayout& table : setup.layout().tables) {
    const std::string text = text_of(options::options_of_table(setup.job(), table.name));
    different.insert(text);
    each.push_back(table.name + " " + text);
  }
  return different.size() == 1 ? *different.begin() : fmt::format("{}", fmt::join(each, ", "));
}

/// The facts about a run that a run which continues it must share. Reads the data.
std::map<std::string, std::string> facts_of(const TrainSetup& setup) {
  const JobOptions& job = setup.job();
  const DataSplit& data = setup.data();
  std::map<std::string, std::string> facts{{"model", job.model},
                                           {"optimizer", describe_rule(job, *setup.optimizer().rule)},
                                           {"seed", std::to_string(job.seed)},
                                           {"global batch", std::to_string(job.global_batch)},
                                           {kSamples, std::to_string(data.train->size())},
                                           {kData, data.fingerprint ? data.fingerprint() : kUnknown},
                                           {kTokenizer, data.tokenizer.empty() ? kUnknown : data.tokenizer},
                                           {"shuffle", job.shuffle}};
  if (!setup.layout().tables.empty())
    facts.insert({{"table optimizer", of_tables(setup, [](const JobOptions& own) { return own.table_optimizer; })},
                  {"table type", of_tables(setup, [](const JobOptions& own) { return own.table_type; })},
                  {"table init", of_tables(setup, [](const JobOptions& own) { return own.table_init; })},
                  {"rows that leave by", of_tables(setup, describe_leaving)}});
  return facts;
}

bool is_about_data(const std::string& fact) { return fact == kData || fact == kSamples || fact == kTokenizer; }

/// Returns the facts that differ: "data A, this run's is B; seed 1, this run's is 2"; "" if none does. Data and
/// tokenizers that this run does not know are not compared, and neither is the tokenizer of a checkpoint that has none.
std::string differences(const std::map<std::string, std::string>& saved, const TrainSetup& setup, bool& of_data) {
  std::string all;
  for (const auto& [fact, value] : facts_of(setup)) {
    if (is_about_data(fact) && (setup.job().other_data || value == kUnknown)) continue;
    const auto found = saved.find(fact);
    const std::string& was = found == saved.end() ? kUnknown : found->second;
    if (was == value || (fact == kTokenizer && was == kUnknown)) continue;
    all += fmt::format("{}{} {}, this run's is {}", all.empty() ? "" : "; ", fact, was, value);
    of_data = of_data || is_about_data(fact);
  }
  return all;
}

constexpr const char* kWorkers = "workers";
constexpr const char* kResidualScale = "residual_scale";

std::vector<optim::SavedTensor> tensors_of(const TrainSetup& setup, std::span<const std::size_t> keepers = {}) {
  std::vector<optim::SavedTensor> tensors;
  std::vector<std::string> trained{optim::kValues};
  for (std::size_t slot = 0; slot < setup.optimizer().rule->slots(); ++slot) trained.push_back(optim::slot_array(slot));
  for (const std::size_t keeper : keepers) trained.push_back(optim::residual_array(keeper));
  const TrainSetup::Whole& whole = setup.whole();
  for (std::size_t i = 0; i < whole.tensors.size(); ++i)
    tensors.push_back({whole.tensors[i].name, whole.tensors[i].shape,
                       whole.trained[i] ? trained : std::vector<std::string>{optim::kValues}});
  for (const TableLayout& table : setup.layout().tables)
    tensors.push_back(optim::saved_table(table, *setup.rows().rules->of(table.name).rule));
  return tensors;
}

}  // namespace

void check_fits(const optim::Checkpoint& saved, const TrainSetup& setup) {
  const std::string name = saved.folder().string();
  bool of_data = false;
  if (const std::string all = differences(saved.manifest().facts, setup, of_data); !all.empty())
    fail(ErrorKind::data, "--resume {}: saved with {}{}", name, all,
         of_data ? " (--other-data continues on other data)" : "");
  require_tensors(saved, tensors_of(setup));
  // A run's own checkpoint of its last step: the evaluation is left, and the saving of the model.
  const std::string& run = setup.job().run_id;
  const bool ends_itself = saved.step() == setup.steps() && !run.empty() && saved.manifest().run == run;
  if (saved.step() >= setup.steps() && !ends_itself)
    fail(ErrorKind::data, "--resume {}: is at step {} already, and the run ends at step {} (--steps)", name,
         saved.step(), setup.steps());
}

std::vector<std::string> units_without_state(const TrainSetup& setup) {
  std::vector<std::string> names;
  if (!setup.saved() || setup.optimizer().rule->slots() == 0) return names;
  for (const UnitLayout& unit : setup.layout().units)
    if (unit.trained && !std::all_of(unit.tensors.begin(), unit.tensors.end(), [&](const TensorLayout& tensor) {
          return setup.saved()->was_trained(tensor.spec.name);
        }))
      names.push_back(unit.name);
  return names;
}

/// Restores this worker's residual. The mean over n workers still lacks the sum of all residuals divided by n.
void restore_residual(const optim::Checkpoint& saved, const TrainSetup& setup, std::span<const std::size_t> keepers,
                      std::size_t rank, ErrorFeedback& feedback) {
  const std::vector<std::size_t> kept = saved.residuals();
  if (kept.empty() || std::ranges::count(keepers, rank) == 0) return;
  const auto& scalars = saved.manifest().scalars;
  const auto workers = scalars.find(kWorkers);
  if (workers == scalars.end() || !(workers->second >= static_cast<double>(kept.size())))
    fail(ErrorKind::data, "{}: has residuals of {} workers, and does not say of how many", saved.folder().string(),
         kept.size());
  const auto now = static_cast<double>(setup.job().data_workers());
  const bool own = std::ranges::equal(kept, keepers) && workers->second == now;
  const auto part = static_cast<float>(now / (workers->second * static_cast<double>(keepers.size())));
  if (const auto scale = scalars.find(kResidualScale); scale != scalars.end()) {
    if (!(scale->second > 0 && std::isfinite(scale->second)))
      fail(ErrorKind::data, "{}: {} is {:g}", saved.folder().string(), kResidualScale, scale->second);
    feedback.loaded(static_cast<float>(scale->second));
  }
  std::vector<float> values;
  for (const UnitId unit : setup.layout().trained()) {
    const Elements out = feedback.residual(unit);
    std::vector<float> left(out.size());
    const auto read = [&](std::size_t keeper, std::span<float> into) {
      saved.read(setup.layout().units[unit], {0, into.size()}, optim::residual_array(keeper), into);
    };
    if (own) {
      read(rank, left);
    } else {
      values.resize(left.size());
      for (const std::size_t keeper : kept) {
        read(keeper, values);
        for (std::size_t i = 0; i < left.size(); ++i) left[i] += part * values[i];
      }
    }
    copy(ConstElements(left), out);
  }
}

Checkpoints::Checkpoints(const TrainSetup& setup, const Plan& plan, const MeshGroups* mesh, const Abilities& able,
                         std::span<const float> buffers, std::span<const std::size_t> keepers, ErrorFeedback* feedback)
    : setup_(setup),
      rank_(plan.place.rank.value),
      data_rank_(plan.data_rank.value),
      mesh_(mesh),
      able_(able),
      buffers_(buffers),
      keepers_(keepers),
      feedback_(feedback),
      folder_(setup.job().checkpoint_folder(), setup.job().run_id) {
  if (able_.saving == nullptr)
    fail(ErrorKind::usage, "--checkpoint-every {}: --strategy {} does not say what it has to save",
         setup.job().checkpoint_every, setup.job().strategy);
  if (rank_ == 0) own_.emplace(setup.job(), setup.saved() ? setup.saved()->step() : 0, facts_of(setup));
}

/// `own`: the parts that this worker saves. Tensors of neither the model nor the layers' buffers are the strategy's.
void Checkpoints::complete(std::uint64_t step, std::span<const optim::StatePart> own) {
  std::vector<optim::SavedTensor> tensors = tensors_of(setup_, keepers_);
  const std::vector<UnitLayout>& units = setup_.layout().units;
  for (const optim::StatePart& part : own) {
    const bool model = std::ranges::any_of(units, [&](const UnitLayout& unit) { return &unit == part.unit; });
    if (model || part.unit == &setup_.buffers()) continue;
    for (const TensorLayout& tensor : part.unit->tensors)
      tensors.push_back({tensor.spec.name, tensor.spec.shape, {part.array}});
  }
  std::map<std::string, double> scalars = able_.loss_scaler().state();
  if (!keepers_.empty()) {
    scalars[kWorkers] = static_cast<double>(setup_.job().data_workers());
    scalars[kResidualScale] = able_.loss_scaler().scale();
  }
  own_->complete(step, std::move(scalars), std::move(tensors));
}

void Checkpoints::save(std::uint64_t step) {
  std::vector<optim::StatePart> parts = able_.saving->state();
  if (data_rank_ == 0 && !buffers_.empty())
    parts.push_back({&setup_.buffers(), {0, buffers_.size()}, optim::kValues, buffers_});
  if (std::ranges::count(keepers_, data_rank_) > 0) {
    feedback_->settle();
    for (const UnitId unit : setup_.layout().trained()) {
      const Elements values = feedback_->residual(unit);
      parts.push_back({&setup_.layout().units[unit], {0, values.size()}, optim::residual_array(data_rank_), values});
    }
  }
  const std::vector<optim::TablePart> tables =
      able_.tables != nullptr ? able_.tables->save(step) : std::vector<optim::TablePart>();
  if (!parts.empty() || !tables.empty())
    optim::write_shard(folder_.aside(step) / fmt::format("worker-{}{}", rank_, optim::kShardSuffix), step, parts,
                       tables);
  able_.saving->wait_saved(step);
  if (mesh_ != nullptr) mesh_->job->barrier().wait();  // the strategy waits for the workers of the same part alone
  if (rank_ == 0) complete(step, parts);
}

bool Checkpoints::is_saved(std::uint64_t step) const { return folder_.has_own(step); }

}  // namespace psring::worker
