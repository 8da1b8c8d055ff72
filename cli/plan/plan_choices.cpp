#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <psring/cli/plan/plan_choices.h>
#include <psring/cli/plan/plan_meshes.h>

namespace psring::cli {
namespace {

using options::Given;

/// The options that a label shows, in this order.
struct Named {
  const char* option;
  const char* shown;
  bool in_series;  ///< part of a curve's name, too
};
constexpr std::array kNamed{
    Named{"local-reduce", "local-reduce", true},
    Named{"shard-group", "group", true},
    Named{"compress", "compress", true},
    Named{"comm-dtype", "comm", true},
    Named{"precision", "precision", true},
    Named{"accumulate", "accumulate", false},
    Named{"activation-checkpointing", "checkpointing", false},
    Named{"bucket", "bucket", false},
    Named{"prefetch", "prefetch", false},
    Named{"reshard-after-forward", "reshard", false},
};

/// Adds every choice with the option at each of the values, unless the option was given. "" leaves the option out.
void vary(std::vector<PlanChoice>& choices, const Given& given, const std::string& option,
          const std::vector<std::string>& values) {
  if (given.contains(option)) return;
  std::vector<PlanChoice> all;
  for (const PlanChoice& choice : choices)
    for (const std::string& value : values) {
      PlanChoice next = choice;
      if (!value.empty()) next.options[option] = value;
      all.push_back(std::move(next));
    }
  choices = std::move(all);
}

/// Numbers of servers that are worth a row: 1, as many as hosts, a half and a quarter. If each worker has a host, also
/// such numbers of standalone servers beside a colocated server in each worker.
void vary_servers(std::vector<PlanChoice>& choices, const Given& given, const bench::Mesh& mesh) {
  if (given.contains("servers")) return;
  const std::size_t most = std::min<std::size_t>(mesh.hosts > 1 ? mesh.hosts : mesh.workers(), 1024);
  const std::string all = mesh.hosts > 1 || mesh.workers() == 1 ? "hosts" : "workers";
  std::map<std::size_t, std::vector<std::string>> rules;
  for (const auto& [count, rule] :
       {std::pair<std::size_t, std::string>{1, "1"}, {most / 4, all + "/4"}, {most / 2, all + "/2"}, {most, all}})
    if (count > 0) rules[count].push_back(rule);
  std::vector<PlanChoice> with;
  for (const PlanChoice& choice : choices)
    for (const auto& [count, names] : rules)
      for (const std::string kind : {"", "mixed:"}) {
        const bool mixed = !kind.empty();
        if (mixed && (mesh.hosts == 1 || mesh.workers_per_host > 1 || count >= mesh.hosts)) continue;
        PlanChoice next = choice;
        next.options["servers"] = kind + std::to_string(count);
        for (const std::string& name : names) next.server_rules.push_back(kind + name);
        with.push_back(std::move(next));
      }
  choices = std::move(with);
}

std::string suffix(const PlanChoice& choice, bool series) {
  std::string text;
  for (const Named& named : kNamed) {
    const auto found = choice.options.find(named.option);
    if (found == choice.options.end() || (series && !named.in_series)) continue;
    text +=
        found->second == "true" ? fmt::format(" {}", named.shown) : fmt::format(" {}={}", named.shown, found->second);
  }
  return text;
}

/// Fewer choices than without a mesh, because each stage is played; a pipeline has micro-batches unless they were
/// given.
std::vector<PlanChoice> choices_in_mesh(std::vector<PlanChoice> choices, const Given& given,
                                        const std::set<std::string>& choose, const worker::StrategyKind& kind,
                                        const MeshWord& word) {
  if (choose.contains("precision")) vary(choices, given, "precision", {"", "bf16"});
  if (choose.contains("activation-checkpointing")) vary(choices, given, "activation-checkpointing", {"", "unit"});
  if (word.stages > 1)
    vary(choices, given, "accumulate", micro_batches_of(word));
  else if (choose.contains("accumulate"))
    vary(choices, given, "accumulate", {"", "2", "4", "8"});
  if (kind.gathers) vary(choices, given, "prefetch", {"", "2"});
  return choices;
}

}  // namespace

std::vector<PlanChoice> plan_choices(const Given& given, const std::set<std::string>& choose, const bench::Mesh& mesh,
                                     const worker::StrategyKind& kind, const MeshWord& word) {
  std::vector<PlanChoice> choices{{.options = word.axes}};
  if (word.parts > 1) return choices_in_mesh(std::move(choices), given, choose, kind, word);
  const bool several = mesh.workers_per_host > 1 && mesh.hosts > 1;
  const bool alone = !kind.servers && !kind.ring;
  if (kind.has_servers() && !kind.colocated && !kind.one_server) vary_servers(choices, given, mesh);
  if (kind.servers && several) vary(choices, given, "local-reduce", {"", "true"});
  if (kind.ring && kind.stage > 0 && several)
    vary(choices, given, "shard-group", {"", std::to_string(mesh.workers_per_host)});
  if (choose.contains("precision")) vary(choices, given, "precision", {"", "bf16"});
  if (choose.contains("compress") && !alone) vary(choices, given, "compress", {"", "bf16", "int8", "top-k"});
  // Compression takes gradients in f32.
  for (PlanChoice& choice : choices)
    if (choice.options.contains("compress") && options::text_of(choice.options, "precision") == "bf16" &&
        !given.contains("comm-dtype"))
      choice.options["comm-dtype"] = "f32";
  if (choose.contains("accumulate")) vary(choices, given, "accumulate", {"", "2", "4", "8"});
  if (choose.contains("activation-checkpointing")) vary(choices, given, "activation-checkpointing", {"", "unit"});
  if (kind.buckets) vary(choices, given, "bucket", {"", "5M", "100M"});
  if (kind.gathers) vary(choices, given, "prefetch", {"", "2"});
  if (kind.gathers) vary(choices, given, "reshard-after-forward", {"", "off"});
  return choices;
}

std::vector<std::vector<PlanChoice>> smaller_choices(const PlanChoice& choice, const Given& given) {
  PlanChoice plain = choice;
  for (const char* name : {"prefetch", "reshard-after-forward", "bucket", "accumulate", "activation-checkpointing"})
    plain.options.erase(name);
  std::vector<PlanChoice> kept{plain};
  vary(kept, given, "activation-checkpointing", {"", "unit"});
  std::vector<std::vector<PlanChoice>> all;
  const Given& stages = plain.options.contains("pipeline") ? plain.options : given;
  const std::size_t least =
      stages.contains("pipeline") ? options::whole_number("--pipeline", stages.at("pipeline")) : 1;
  std::vector<std::string> micros{least == 1 ? "" : std::to_string(least)};
  for (std::size_t micro = 2 * least; micro <= std::max<std::size_t>(64, least); micro *= 2)
    micros.push_back(std::to_string(micro));
  for (const PlanChoice& one : kept) {
    all.push_back({one});
    vary(all.back(), given, "accumulate", micros);
  }
  return all;
}

bool changes_numerics(const PlanChoice& choice) {
  return choice.options.contains("compress") || choice.options.contains("precision");
}

std::string servers_text(const JobOptions& job) {
  return job.placement == "mixed" ? fmt::format("mixed:{}", job.standalone_servers()) : std::to_string(job.servers);
}

std::string label_of(const JobOptions& job, const worker::StrategyKind& kind, const PlanChoice& choice) {
  return (kind.has_servers() ? fmt::format("{} s={}", job.strategy, servers_text(job)) : mesh_name(job)) +
         suffix(choice, false);
}

std::vector<std::string> series_of(const JobOptions& job, const PlanChoice& choice) {
  PlanChoice named = choice;
  if (named.options.contains("shard-group")) named.options["shard-group"] = "host";  // the plan's groups are hosts
  const std::string end = suffix(named, true);
  if (choice.server_rules.empty()) return {mesh_name(job) + end};
  std::vector<std::string> names;
  for (const std::string& rule : choice.server_rules)
    names.push_back(fmt::format("{} s={}{}", job.strategy, rule, end));
  return names;
}

}  // namespace psring::cli
