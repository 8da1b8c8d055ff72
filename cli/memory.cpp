// psring memory: what a job, or a transformer of a given size, needs; nothing is started.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/cli/commands.h>
#include <psring/cli/entries.h>
#include <psring/cli/job_flags.h>
#include <psring/cli/job_memory.h>
#include <psring/cli/memory_formulas.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/error.h>
#include <psring/common/base/json.h>
#include <psring/common/base/spec.h>
#include <psring/optim/block_codes.h>
#include <psring/optim/job_optimizer.h>

namespace psring::cli {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kMiB = 1 << 20;
constexpr std::size_t kMostWorkers = 4096;
constexpr std::size_t kMostBatch = std::size_t{1} << 20;
constexpr std::size_t kMostJobWorkers = 64;  // a strategy is made for each number
constexpr std::size_t kMostJobBatch = 4096;

struct MemoryFlags {
  options::Given job;
  std::vector<std::string> strategies{"single", "ddp", "zero1", "zero2", "zero3", "ps"};
  std::size_t hosts = 1;
  std::string limit;
  std::string parameters;
  std::size_t layers = 0;
  std::size_t dim = 0;
  std::size_t heads = 0;
  std::size_t context = 2048;
  bool inference = false;
  std::size_t weight_bits = 16;
  std::size_t state_bits = 32;
  bool json = false;
  std::optional<Sweep> sweep;
};

std::string size_text(double bytes) {
  return bytes >= kGiB ? fmt::format("{:.2f} GiB", bytes / kGiB) : fmt::format("{:.2f} MiB", bytes / kMiB);
}

std::optional<double> limit_of(const MemoryFlags& flags) {
  if (flags.limit.empty()) return std::nullopt;
  return static_cast<double>(parse_bytes("--limit", flags.limit));
}

// A transformer of which only the size is known.

/// The options of a job that the formulas take.
const std::set<std::string, std::less<>> kTransformerOptions{
    "workers", "batch-size", "precision", "optimizer", "momentum", "master-copy", "activation-checkpointing"};

void check_transformer_flags(const MemoryFlags& flags) {
  if ((flags.layers > 0) != (flags.dim > 0))
    fail(ErrorKind::usage, "{}: --layers and --dim are given together", flags.layers > 0 ? "--layers" : "--dim");
  if (flags.state_bits != 8 && flags.state_bits != 32)
    fail(ErrorKind::usage, "--state-bits {}: expected 8 or 32", flags.state_bits);
  if (flags.weight_bits != 4 && flags.weight_bits != 8 && flags.weight_bits != 16 && flags.weight_bits != 32)
    fail(ErrorKind::usage, "--weight-bits {}: expected 4, 8, 16 or 32", flags.weight_bits);
  for (const auto& [name, text] : flags.job) {
    const bool known = flags.inference ? name == "batch-size" : kTransformerOptions.contains(name);
    if (!known)
      fail(ErrorKind::usage, "--{}: means nothing {}", name,
           flags.inference ? "with --inference" : "with --parameters; give a --model");
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
  return {.parameters = parse_parameters("--parameters", flags.parameters),
          .layers = flags.layers,
          .dim = flags.dim,
          .heads = flags.heads,
          .context = flags.context};
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
          .workers = positive(given, "workers", 1),
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

void print_terms(const std::string& title, const std::vector<MemoryTerm>& terms, const std::optional<double>& limit) {
  fmt::print("{}\n", title);
  for (const MemoryTerm& term : terms)
    fmt::print("  {:<12} {:<46} = {:>12}\n", term.name, term.formula, size_text(term.bytes));
  const double total = total_bytes(terms);
  fmt::print("  {:<12} {:<46}   {:>12}\n", "total",
             !limit            ? std::string()
             : total <= *limit ? fmt::format("fits into {}", size_text(*limit))
                               : fmt::format("does not fit into {}", size_text(*limit)),
             size_text(total));
}

/// Returns the largest number in [1, most] that fits, if a larger number never needs less; 0: none.
template <class Fits>
std::size_t largest(std::size_t most, const Fits& fits) {
  std::size_t low = 0;
  std::size_t high = 1;
  while (high <= most && fits(high)) {
    low = high;
    high *= 2;
  }
  high = std::min(high, most + 1);
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

/// Returns the smallest power of two, or number below 16, that fits.
template <class Fits>
std::optional<std::size_t> smallest(std::size_t most, const Fits& fits) {
  for (std::size_t n = 1; n <= most; n = n < 16 ? n + 1 : 2 * n)
    if (fits(n)) return n;
  return std::nullopt;
}

void print_answers(std::size_t batch, const std::optional<std::size_t>& workers) {
  if (batch > 0)
    fmt::print("  largest batch of a worker that fits: {}{}\n", batch, batch == kMostBatch ? " or more" : "");
  if (workers)
    fmt::print("  smallest number of workers that fits: {}\n", *workers);
  else
    fmt::print("  no number of workers up to {} fits\n", kMostWorkers);
}

int transformer_training(const MemoryFlags& flags, const App& app) {
  const TrainingMemory of = training_of(flags, app);
  const std::optional<double> limit = limit_of(flags);
  Json document = Json::array();
  for (const std::string& strategy : flags.strategies) {
    if (strategy == "ps" || strategy.starts_with("ps-")) {
      if (flags.strategies.size() > 1) continue;  // of the default list
    }
    const std::size_t stage = stage_of(strategy, app);
    TrainingMemory here = of;
    if (strategy == "single") here.workers = 1;
    const std::vector<MemoryTerm> terms = training_memory(here, stage);
    if (flags.json) {
      document.push_back({{"strategy", strategy}, {"workers", here.workers}, {"worker", json_of(terms)}});
      continue;
    }
    print_terms(fmt::format("{}, {} worker{}, each:", strategy, here.workers, here.workers == 1 ? "" : "s"), terms,
                limit);
    if (!limit) continue;
    const auto total = [&](std::size_t workers, std::size_t batch) {
      TrainingMemory other = here;
      other.workers = workers;
      other.batch = batch;
      return total_bytes(training_memory(other, stage));
    };
    const std::size_t batch =
        of.size.has_shape() ? largest(kMostBatch, [&](std::size_t b) { return total(here.workers, b) <= *limit; }) : 0;
    std::optional<std::size_t> workers;
    if (stage > 0 || total(1, here.batch) <= *limit)
      workers = smallest(kMostWorkers, [&](std::size_t n) { return total(n, here.batch) <= *limit; });
    print_answers(batch, workers);
  }
  if (flags.json) fmt::print("{}\n", document.dump(2));
  return 0;
}

int transformer_inference(const MemoryFlags& flags) {
  const std::vector<MemoryTerm> terms = inference_memory(
      {.size = size_of(flags), .weight_bits = flags.weight_bits, .batch = positive(flags.job, "batch-size", 1)});
  if (flags.json) {
    fmt::print("{}\n", json_of(terms).dump(2));
    return 0;
  }
  print_terms("inference:", terms, limit_of(flags));
  return 0;
}

// A job.

std::string mib(std::uint64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / kMiB); }

std::vector<std::string> row_of(const std::string& name, const std::map<Category, std::uint64_t>& memory) {
  std::vector<std::string> cells{name};
  const auto cell = [&](Category category) {
    const auto found = memory.find(category);
    cells.push_back(found == memory.end() ? kNothing : mib(found->second));
  };
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations, Category::communication})
    cell(category);
  cells.push_back(mib(worker::total_bytes(memory)));
  return cells;
}

Json json_of(const std::map<Category, std::uint64_t>& memory) {
  Json object;
  for (const auto& [category, bytes] : memory) object[std::string(to_string(category))] = bytes;
  object["total"] = worker::total_bytes(memory);
  return object;
}

/// The bytes of the entry's fullest process with another number of workers and batch of each; infinite if such a job
/// cannot run.
double bytes_with(const Entry& entry, std::size_t workers, std::size_t batch, const App& app) {
  JobOptions job = entry.job;
  if (job.servers == job.workers || job.placement == "colocated") job.servers = std::min(workers, job.servers);
  job.workers = workers;
  job.global_batch = batch * workers * job.virtual_workers;
  try {
    const JobMemory memory = job_memory(job, 1, app);
    return static_cast<double>(std::max(worker::total_bytes(memory.worker), worker::total_bytes(memory.server)));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::data) throw;
    return std::numeric_limits<double>::infinity();
  }
}

std::string answers(const Entry& entry, const JobMemory& memory, double limit, const App& app) {
  const std::size_t workers = entry.job.workers;
  const std::size_t batch = entry.job.batch_per_worker();
  const auto bytes = std::max(worker::total_bytes(memory.worker), worker::total_bytes(memory.server));
  std::string text = static_cast<double>(bytes) <= limit ? "; fits" : "; does not fit";
  const std::size_t most =
      largest(kMostJobBatch, [&](std::size_t b) { return bytes_with(entry, workers, b, app) <= limit; });
  text += most > 0 ? fmt::format("; the largest batch of a worker that fits: {}{}", most,
                                 most == kMostJobBatch ? " or more" : "")
                   : "; no batch fits";
  if (entry.job.strategy == "single") return text;
  const auto least =
      smallest(kMostJobWorkers, [&](std::size_t n) { return bytes_with(entry, n, batch, app) <= limit; });
  return text + (least ? fmt::format("; the smallest number of workers that fits: {}", *least)
                       : fmt::format("; no number of workers up to {} fits", kMostJobWorkers));
}

int job_table(MemoryFlags& flags, const Invocation& invocation) {
  const App& app = invocation.app;
  flags.job.try_emplace("data", "synthetic");
  if (!flags.job.contains("epochs")) flags.job.try_emplace("steps", "1");
  const std::optional<double> limit = limit_of(flags);
  TextTable table({"MiB, each process", "params", "grads", "optim", "activ", "comm", "total"});
  Json document = Json::array();
  std::string lines;
  for (const Entry& entry : make_entries(flags.job, flags.strategies, *flags.sweep, app)) {
    const JobMemory memory = job_memory(entry.job, flags.hosts, app);
    document.push_back({{"strategy", entry.label},
                        {"workers", entry.job.workers},
                        {"servers", memory.servers},
                        {"worker", json_of(memory.worker)},
                        {"server", json_of(memory.server)},
                        {"host", memory.host_bytes}});
    table.add(row_of(memory.servers > 0 ? entry.label + " worker" : entry.label, memory.worker));
    if (memory.servers > 0) table.add(row_of(entry.label + " server", memory.server));
    lines +=
        wrapped(fmt::format("{}: {} on each host{}{}", entry.label, size_text(static_cast<double>(memory.host_bytes)),
                            flags.hosts > 1 ? fmt::format(" of {}", flags.hosts) : "",
                            limit && !flags.json ? answers(entry, memory, *limit, app) : ""),
                80, 2);
  }
  if (flags.json)
    fmt::print("{}\n", document.dump(2));
  else
    fmt::print("{}{}", table.plain(80), lines);
  return 0;
}

int memory(MemoryFlags& flags, const Invocation& invocation) {
  if (flags.hosts == 0) fail(ErrorKind::usage, "--hosts 0: expected at least one");
  if (flags.parameters.empty()) {
    for (const auto& [given, name] : {std::pair(flags.inference, "--inference"),
                                      {flags.layers > 0, "--layers"},
                                      {flags.dim > 0, "--dim"},
                                      {flags.heads > 0, "--heads"},
                                      {flags.state_bits != 32, "--state-bits"},
                                      {flags.weight_bits != 16, "--weight-bits"}})
      if (given) fail(ErrorKind::usage, "{}: needs --parameters", name);
    return job_table(flags, invocation);
  }
  check_transformer_flags(flags);
  return flags.inference ? transformer_inference(flags) : transformer_training(flags, invocation.app);
}

}  // namespace

Command add_memory(const Flags& program) {
  const Flags command = program.add_command("memory", "calculate the memory of a job, or of a model's size");
  auto flags = std::make_shared<MemoryFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--strategies", flags->strategies, "strategies, separated by commas").separate_by(',').show_default();
  command.add("--hosts", flags->hosts, "hosts that share the job's processes evenly").show_default();
  command.add("--limit", flags->limit, "memory of a process, such as a GPU's 24G: say what fits into it")
      .show_value("SIZE");
  command.add("--parameters", flags->parameters, "in place of --model: number of parameters, such as 7B");
  command.add("--layers", flags->layers, "with --parameters: transformer layers, for activations and KV cache");
  command.add("--dim", flags->dim, "with --layers: width of the model");
  command.add("--heads", flags->heads, "with --layers: attention heads (dim / 128)");
  command.add("--context", flags->context, "with --layers: tokens of a sample").show_default();
  command.add("--state-bits", flags->state_bits, "with --parameters: bits of a value of optimizer state, 8 or 32")
      .show_default();
  command.add_switch("--inference", flags->inference, "with --parameters: weights, KV cache and overhead");
  command.add("--weight-bits", flags->weight_bits, "with --inference: bits of a weight, 4, 8, 16 or 32").show_default();
  command.add_switch("--json", flags->json, "print JSON, in bytes");
  add_job_flags(command, flags->job);
  flags->sweep.emplace(command);
  command.add_footer(
      "Takes the options of a job as train does. Nothing is started: the figures are those that a run checks itself "
      "against.");
  return [flags](const Invocation& invocation) { return memory(*flags, invocation); };
}

}  // namespace psring::cli
