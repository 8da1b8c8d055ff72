// psring memory --parameters: a transformer of which only the size is known.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <psring/cli/memory/memory_command.h>
#include <psring/cli/memory/memory_formulas.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/block_codes.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {
namespace {

constexpr std::size_t kMostWorkers = 4096;
constexpr std::size_t kMostShape = std::size_t{1} << 24;
constexpr std::size_t kMostBatch = std::size_t{1} << 20;

/// The options of a job that the formulas take.
const std::set<std::string, std::less<>> kTransformerOptions{
    "workers", "batch-size", "precision", "optimizer", "momentum", "master-copy", "activation-checkpointing"};

void check_flags(const MemoryFlags& flags) {
  if ((flags.layers > 0) != (flags.dim > 0))
    fail(ErrorKind::usage, "{}: --layers and --dim are given together", flags.layers > 0 ? "--layers" : "--dim");
  if (flags.state_bits != 8 && flags.state_bits != 32)
    fail(ErrorKind::usage, "--state-bits {}: expected 8 or 32", flags.state_bits);
  if (flags.weight_bits != 4 && flags.weight_bits != 8 && flags.weight_bits != 16 && flags.weight_bits != 32)
    fail(ErrorKind::usage, "--weight-bits {}: expected 4, 8, 16 or 32", flags.weight_bits);
  if (flags.kv_heads > 0 && (!flags.inference || flags.dim == 0))
    fail(ErrorKind::usage, "--kv-heads: sizes the KV cache; give --inference, --layers and --dim, too");
  const MemoryFlags plain;
  for (const auto& [given, line] :
       {std::pair(flags.hosts != plain.hosts, "--hosts: means nothing with --parameters; give a --model"),
        {flags.heads > 0 && flags.layers == 0, "--heads: needs --layers"},
        {flags.heads > 0 && flags.inference && flags.kv_heads == 0, "--heads: with --inference needs --kv-heads"},
        {flags.weight_bits != plain.weight_bits && !flags.inference, "--weight-bits: needs --inference"},
        {flags.state_bits != plain.state_bits && flags.inference, "--state-bits: means nothing with --inference"},
        {flags.strategies != plain.strategies && flags.inference, "--strategies: means nothing with --inference"}})
    if (given) throw Error(ErrorKind::usage, line);
  options::check_count("--context", flags.context, kMostShape);
  for (const auto& [name, value] : {std::pair("--layers", flags.layers),
                                    {"--dim", flags.dim},
                                    {"--heads", flags.heads},
                                    {"--kv-heads", flags.kv_heads}})
    if (value > 0) options::check_count(name, value, kMostShape);
  if (flags.heads > 0 && flags.dim % flags.heads != 0)
    fail(ErrorKind::usage, "--heads {}: --dim {} is not divisible by it", flags.heads, flags.dim);
  for (const auto& [name, text] : flags.job) {
    const bool known = flags.inference ? name == "batch-size" : kTransformerOptions.contains(name);
    if (!known)
      fail(ErrorKind::usage, "--{}: means nothing {}", name,
           flags.inference   ? "with --inference"
           : name == "model" ? "with --parameters"
                             : "with --parameters; give a --model");
  }
}

/// The stage of ZeRO whose shares a worker of the strategy has. Throws usage if servers or nobody own the state.
std::size_t stage_of(const std::string& strategy, const App& app) {
  const auto kind = app.worker_registries().strategies.make(Spec::parse("--strategies", strategy));
  if (kind->servers)
    fail(ErrorKind::usage, "--strategies {}: with --parameters, workers own the state; give a --model", strategy);
  return kind->ring ? kind->stage : 0;
}

TransformerSize size_of(const MemoryFlags& flags) {
  TransformerSize size{.parameters = parse_parameters("--parameters", flags.parameters),
                       .layers = flags.layers,
                       .dim = flags.dim,
                       .heads = flags.heads,
                       .kv_heads = flags.kv_heads,
                       .context = flags.context};
  if (flags.kv_heads > 0 && size.number_of_heads() % flags.kv_heads != 0)
    fail(ErrorKind::usage, "--kv-heads {}: expected a divisor of the {} heads", flags.kv_heads, size.number_of_heads());
  return size;
}

std::size_t positive(const options::Given& given, const char* name, std::size_t otherwise) {
  const auto found = given.find(name);
  return found == given.end() ? otherwise : parse_positive(std::string("--") + name, found->second);
}

TrainingMemory training_of(const MemoryFlags& flags, const App& app) {
  options::Given given = flags.job;
  given.try_emplace("optimizer", "adamw");
  JobOptions job = options::job_of(given);
  given.try_emplace("precision", "bf16");
  const std::string precision = options::text_of(given, "precision");
  if (precision != "f32" && precision != "bf16" && precision != "f16")
    fail(ErrorKind::usage, "--precision: expected f32, bf16 or f16, got '{}'", precision);
  const auto rule = optim::make_optimizer(app.optimizers(), job);
  const bool own = rule->state_bits() == 8;  // psring's own blocks; else the paper's
  return {.size = size_of(flags),
          .type = parse_dtype("--precision", precision),
          .master_copy = job.master_copy,
          .slots = rule->slots(),
          .state_bits = own ? 8 : flags.state_bits,
          .state_block = own ? optim::kCodeBlock : 2048,
          .workers = positive(given, "workers", job.workers),
          .batch = positive(given, "batch-size", 1),
          .checkpointing = job.activation_checkpointing == "unit"};
}

Json json_of(const std::vector<MemoryTerm>& terms) {
  Json object;
  for (const MemoryTerm& term : terms)
    object[term.name] = {{"bytes", static_cast<std::uint64_t>(term.bytes)}, {"formula", term.formula}};
  object["total"] = static_cast<std::uint64_t>(total_bytes(terms));
  return object;
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, columns_of(text)), ' ');
}

void print_terms(const std::string& title, const std::vector<MemoryTerm>& terms, const std::optional<double>& limit,
                 Language language) {
  out::print("{}\n", title);
  for (const MemoryTerm& term : terms)
    out::print("  {} {} = {:>12}\n", padded(memory_name(term.name, language), 12), padded(term.formula, 46),
               size_text(term.bytes));
  const double total = total_bytes(terms);
  std::string fits;
  if (limit)
    fits =
        say(language, total <= *limit ? Text{"fits into {}", "放得进 {}"} : Text{"does not fit into {}", "放不进 {}"},
            size_text(*limit));
  out::print("  {} {}   {:>12}\n", padded(memory_name("total", language), 12), padded(fits, 46), size_text(total));
}

void print_batch(std::size_t batch, const Text& text, Language language) {
  if (batch == 0) return;
  const std::string count =
      batch == kMostBatch ? say(language, {"{} or more", "{} 或更大"}, batch) : std::to_string(batch);
  out::print("  {}\n", say(language, text, count));
}

void print_workers(const std::optional<std::size_t>& workers, Language language) {
  if (workers)
    out::print("  {}\n",
               say(language, {"smallest number of workers that fits: {}", "放得下的最少 worker 数：{}"}, *workers));
  else
    out::print("  {}\n",
               say(language, {"no number of workers up to {} fits", "worker 数不超过 {} 时都放不下"}, kMostWorkers));
}

void print_training(const std::string& strategy, const TrainingMemory& of, std::size_t stage,
                    const std::optional<double>& limit, Language language) {
  print_terms(say(language,
                  of.workers == 1 ? Text{"{}, {} worker, each:", "{}，{} 个 worker，每个："}
                                  : Text{"{}, {} workers, each:", "{}，{} 个 worker，每个："},
                  strategy, of.workers),
              training_memory(of, stage, language), limit, language);
  if (!limit) return;
  const auto total = [&](std::size_t workers, std::size_t batch) {
    TrainingMemory other = of;
    other.workers = workers;
    other.batch = batch;
    return total_bytes(training_memory(other, stage));
  };
  const std::size_t batch =
      of.size.has_shape() ? largest(kMostBatch, [&](std::size_t b) { return total(of.workers, b) <= *limit; }) : 0;
  print_batch(batch, {"largest batch of a worker that fits: {}", "每个 worker 放得下的最大批量：{}"}, language);
  std::optional<std::size_t> workers;
  if (stage > 0 || total(1, of.batch) <= *limit)
    workers = smallest(kMostWorkers, [&](std::size_t n) { return total(n, of.batch) <= *limit; });
  print_workers(workers, language);
}

int training(const MemoryFlags& flags, const App& app) {
  const TrainingMemory of = training_of(flags, app);
  Json document = Json::array();
  for (const std::string& strategy : flags.strategies) {
    if (strategy == "ps" || strategy.starts_with("ps-")) {
      if (flags.strategies.size() > 1) continue;  // of the default list
    }
    const std::size_t stage = stage_of(strategy, app);
    TrainingMemory here = of;
    if (strategy == "single") here.workers = 1;
    if (flags.json)
      document.push_back(
          {{"strategy", strategy}, {"workers", here.workers}, {"worker", json_of(training_memory(here, stage))}});
    else
      print_training(strategy, here, stage, flags.limit_bytes(), flags.language());
  }
  if (flags.json) out::print("{}\n", document.dump(2));
  return 0;
}

int inference(const MemoryFlags& flags) {
  const InferenceMemory of{
      .size = size_of(flags), .weight_bits = flags.weight_bits, .batch = positive(flags.job, "batch-size", 1)};
  const Language language = flags.language();
  if (flags.json) {
    out::print("{}\n", json_of(inference_memory(of)).dump(2));
    return 0;
  }
  const std::optional<double> limit = flags.limit_bytes();
  print_terms(say(language, {"inference:", "推理："}), inference_memory(of, language), limit, language);
  if (!limit || !of.size.has_shape()) return 0;
  const std::size_t batch = largest(kMostBatch, [&](std::size_t sequences) {
    InferenceMemory other = of;
    other.batch = sequences;
    return total_bytes(inference_memory(other)) <= *limit;
  });
  print_batch(batch, {"most sequences at a time that fit: {}", "同时放得下的最多序列数：{}"}, language);
  if (batch == 0) out::print("  {}\n", say(language, {"no sequence fits", "一个序列也放不下"}));
  return 0;
}

}  // namespace

int transformer_memory(const MemoryFlags& flags, const App& app) {
  check_flags(flags);
  return flags.inference ? inference(flags) : training(flags, app);
}

}  // namespace psring::cli
