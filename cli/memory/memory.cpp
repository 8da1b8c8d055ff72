// psring memory: what a job, or a transformer of a given size, needs; nothing is started. This half: a job.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/cli/commands.h>
#include <psring/cli/memory/memory_command.h>
#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/resolve.h>
#include <psring/cli/text_table.h>
#include <psring/cli/train/entries.h>
#include <psring/cli/train/job_memory.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/options/check.h>
#include <psring/worker/predict_job.h>

namespace psring::cli {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kMiB = 1 << 20;
constexpr std::size_t kMostHosts = 4096;
constexpr std::size_t kMostJobWorkers = 64;  // a strategy is made for each number
constexpr std::size_t kMostJobBatch = 4096;

/// Finds what fits into --limit, by the jobs that `train` would make of the same options.
class Fits {
 public:
  Fits(const Entry& entry, double limit, std::size_t hosts, const App& app)
      : entry_(entry), limit_(limit), hosts_(hosts), app_(app) {}

  /// Whether no process of the job with another number of workers, and batch of each, needs more than the limit. False
  /// if such a job cannot run.
  bool with(std::size_t workers, std::size_t batch) const {
    options::Given given = entry_.given;
    given["workers"] = std::to_string(workers);
    given["batch-size"] = std::to_string(batch);
    given.erase("global-batch");
    try {
      LeftOut left_out;
      const JobOptions job = resolve(given, entry_.job.strategy, *entry_.kind, &left_out, true);
      return static_cast<double>(job_memory(job, hosts_, app_).process_bytes()) <= limit_;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::data) throw;
      return false;
    }
  }
  /// The largest batch of a worker; 0: none.
  std::size_t largest_batch() const {
    return largest(kMostJobBatch, [this](std::size_t batch) { return with(entry_.job.workers, batch); });
  }
  /// The smallest number of workers with the row's batch of each.
  std::optional<std::size_t> smallest_workers() const {
    const std::size_t parts = entry_.job.mesh().model_workers();  // each copy of the model has as many workers
    const auto copies = smallest(kMostJobWorkers / parts,
                                 [&](std::size_t n) { return with(n * parts, entry_.job.batch_per_worker()); });
    return copies ? std::optional(*copies * parts) : std::nullopt;
  }

 private:
  const Entry& entry_;
  const double limit_;
  const std::size_t hosts_;
  const App& app_;
};

std::string answers(const Entry& entry, const JobMemory& memory, double limit, std::size_t hosts, const App& app,
                    Language language) {
  const Fits fits(entry, limit, hosts, app);
  std::string text =
      say(language, static_cast<double>(memory.process_bytes()) <= limit ? Text{"; fits", "；放得下"}
                                                                         : Text{"; does not fit", "；放不下"});
  const std::size_t most = fits.largest_batch();
  if (most == 0)
    text += say(language, {"; no batch fits", "；任何批量都放不下"});
  else
    text += say(
        language,
        most == kMostJobBatch
            ? Text{"; the largest batch of a worker that fits: {} or more", "；每个 worker 放得下的最大批量：{} 或更大"}
            : Text{"; the largest batch of a worker that fits: {}", "；每个 worker 放得下的最大批量：{}"},
        most);
  if (entry.kind->one_worker) return text;
  if (const auto workers = fits.smallest_workers())
    return text + say(language,
                      {"; the smallest number of workers that fits: {} (--batch-size {})",
                       "；放得下的最少 worker 数：{}（--batch-size {}）"},
                      *workers, entry.job.batch_per_worker());
  return text +
         say(language, {"; no number of workers up to {} fits", "；worker 数不超过 {} 时都放不下"}, kMostJobWorkers);
}

std::string host_line(const Entry& entry, const JobMemory& memory, const MemoryFlags& flags) {
  const Language language = flags.language();
  const std::string size = size_text(static_cast<double>(memory.host_bytes));
  if (flags.hosts == 1) return say(language, {"{}: {} on each host", "{}：每台主机 {}"}, entry.label, size);
  return say(language, {"{}: {} on each host of {}", "{0}：{2} 台主机，每台 {1}"}, entry.label, size, flags.hosts);
}

int job_table(MemoryFlags& flags, const Invocation& invocation) {
  const App& app = invocation.app;
  const Language language = flags.language();
  require_data_for_tables(flags.job, app);
  flags.job.try_emplace("data", "synthetic");
  if (!flags.job.contains("epochs")) flags.job.try_emplace("steps", "1");
  const std::optional<double> limit = flags.limit_bytes();
  std::vector<std::pair<std::string, std::map<Category, std::uint64_t>>> processes;
  Json document = Json::array();
  std::string lines;
  for (const Entry& entry : make_entries(flags.job, flags.strategies, *flags.sweep, app)) {
    const JobMemory memory = job_memory(entry.job, flags.hosts, app);
    document.push_back({{"strategy", entry.label},
                        {"workers", entry.job.workers},
                        {"servers", memory.servers},
                        {"worker", json_of(memory.worker)},
                        {"server", json_of(memory.server)},
                        {"colocated_server", memory.guest.empty() ? Json() : json_of(memory.guest)},
                        {"host", memory.host_bytes}});
    processes.emplace_back(memory.servers > 0 ? entry.label + " worker" : entry.label, memory.worker);
    const bool differ = memory.servers > 0 && !memory.guest.empty() && memory.guest != memory.server;
    if (differ) processes.emplace_back(entry.label + " colocated server", memory.guest);
    if (memory.servers > 0)
      processes.emplace_back(entry.label + (differ ? " standalone server" : " server"), memory.server);
    const std::string more = limit && !flags.json ? answers(entry, memory, *limit, flags.hosts, app, language) : "";
    lines += wrapped(host_line(entry, memory, flags) + more, 80, 2);
  }
  if (flags.json) {
    out::print("{}\n", document.dump(2));
    return 0;
  }
  const bool index =
      std::ranges::any_of(processes, [](const auto& process) { return process.second.contains(Category::index); });
  TextTable table(memory_head(language, index));
  for (const auto& [name, memory] : processes) table.add(memory_row(name, memory, index));
  out::print("{}{}", table.plain(80), lines);
  return 0;
}

int memory(MemoryFlags& flags, const Invocation& invocation) {
  if (flags.hosts == 0) fail(ErrorKind::usage, "--hosts 0: expected at least one");
  options::check_count("--hosts", flags.hosts, kMostHosts);
  parse_language(flags.lang);
  flags.limit_bytes();  // throws if it is wrong, also where --json leaves it out
  if (flags.table.find(':') != std::string::npos) flags.job["table"] = std::exchange(flags.table, "");  // of a job
  if (!flags.parameters.empty() && !flags.table.empty())
    fail(ErrorKind::usage, "--table: expected without --parameters");
  if (!flags.table.empty() && flags.lookups.empty())
    fail(ErrorKind::usage, "--table: needs --lookups, the lookups of a worker's batch");
  if (flags.context != MemoryFlags().context && flags.layers == 0) fail(ErrorKind::usage, "--context: needs --layers");
  if (!flags.lookups.empty() && flags.table.empty()) fail(ErrorKind::usage, "--lookups: needs --table");
  if (flags.zipf != MemoryFlags().zipf && flags.table.empty()) fail(ErrorKind::usage, "--zipf: needs --table");
  if (!flags.parameters.empty()) return transformer_memory(flags, invocation.app);
  for (const auto& [given, name] : {std::pair(flags.inference, "--inference"),
                                    {flags.layers > 0, "--layers"},
                                    {flags.dim > 0, "--dim"},
                                    {flags.heads > 0, "--heads"},
                                    {flags.kv_heads > 0, "--kv-heads"},
                                    {flags.state_bits != 32, "--state-bits"},
                                    {flags.weight_bits != 16, "--weight-bits"}})
    if (given) fail(ErrorKind::usage, "{}: needs --parameters", name);
  if (!flags.table.empty()) return table_memory(flags, invocation.app);
  return job_table(flags, invocation);
}

}  // namespace

std::optional<double> MemoryFlags::limit_bytes() const {
  if (limit.empty()) return std::nullopt;
  const std::size_t bytes = parse_bytes("--limit", limit);
  if (bytes == 0) fail(ErrorKind::usage, "--limit: expected bytes > 0, got '{}'", limit);
  return static_cast<double>(bytes);
}

std::vector<std::string> memory_head(Language language, bool index) {
  const bool zh = language == Language::zh;
  std::vector<std::string> head =
      zh ? std::vector<std::string>{"MiB，每个进程", "参数", "梯度", "优化器", "激活", "通信", "合计"}
         : std::vector<std::string>{"MiB, each process", "params", "grads", "optim", "activ", "comm", "total"};
  if (index) head.insert(head.end() - 1, zh ? "索引" : "index");
  return head;
}

std::vector<std::string> memory_row(const std::string& name, const std::map<Category, std::uint64_t>& memory,
                                    bool index) {
  const auto mib = [](std::uint64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / kMiB); };
  std::vector<std::string> cells{name};
  const auto cell = [&](Category category) {
    const auto found = memory.find(category);
    cells.push_back(found == memory.end() ? kNothing : mib(found->second));
  };
  for (const Category category :
       {Category::parameters, Category::gradients, Category::optimizer, Category::activations, Category::communication})
    cell(category);
  if (index) cell(Category::index);
  cells.push_back(mib(worker::total_bytes(memory)));
  return cells;
}

Json json_of(const std::map<Category, std::uint64_t>& memory) {
  Json object = worker::to_json(memory);
  object["total"] = worker::total_bytes(memory);
  return object;
}

std::string size_text(double bytes) {
  if (bytes < kMiB / 100) return fmt::format("{:.0f} B", bytes);
  return bytes >= kGiB ? fmt::format("{:.2f} GiB", bytes / kGiB) : fmt::format("{:.2f} MiB", bytes / kMiB);
}

std::string memory_name(const std::string& name, Language language) {
  if (language == Language::en) return name;
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"parameters", "参数"}, {"gradients", "梯度"},   {"optimizer", "优化器"}, {"activations", "激活"},
      {"weights", "权重"},    {"KV cache", "KV 缓存"}, {"overhead", "开销"},    {"total", "合计"}};
  for (const auto& [en, zh] : kNames)
    if (name == en) return zh;
  return name;
}

Command add_memory(const Flags& program) {
  const Flags command = program.add_command("memory", "calculate the memory of a job, or of a model's size");
  auto flags = std::make_shared<MemoryFlags>();  // shared: the parser fills it in, the command reads it
  const Flag strategies =
      command.add("--strategies", flags->strategies, "strategies, separated by commas").separate_by(',').show_default();
  command.add("--hosts", flags->hosts, "hosts that share the job's processes evenly").show_default();
  command.add("--limit", flags->limit, "memory of a process, such as a GPU's 24G: say what fits into it")
      .show_value("SIZE");
  command.add("--parameters", flags->parameters,
              "in place of --model: number of parameters, such as 7B; in bf16 with adamw, unless --precision and "
              "--optimizer are given");
  command.add("--table", flags->table,
              "in place of --model: the rows and the width of a table, such as 100Mx64; one worker and server, unless "
              "given. NAME:KEYS: as train");
  command.add("--lookups", flags->lookups, "with --table: lookups of a worker's batch, such as 16384 or 26x2048");
  command.add("--zipf", flags->zipf, "with --table: exponent of the keys' distribution; 0: uniform").show_default();
  command.add("--layers", flags->layers, "with --parameters: transformer layers, for activations and KV cache");
  command.add("--dim", flags->dim, "with --layers: width of the model");
  command.add("--heads", flags->heads, "with --layers: attention heads (dim / 128)");
  command.add("--kv-heads", flags->kv_heads, "with --inference: heads of keys and values, if queries share them");
  command.add("--context", flags->context, "with --layers: tokens of a sample").show_default();
  command.add("--state-bits", flags->state_bits, "with --parameters: bits of a value of optimizer state, 8 or 32")
      .show_default();
  command.add_switch("--inference", flags->inference, "with --parameters: weights, KV cache and overhead");
  command.add("--weight-bits", flags->weight_bits, "with --inference: bits of a weight, 4, 8, 16 or 32").show_default();
  command.add_switch("--json", flags->json, "print JSON, in bytes");
  command.add("--lang", flags->lang, kLanguageHelp).show_default();
  add_job_flags(command, flags->job, "table");
  flags->sweep.emplace(command);
  command.add_footer(
      "Takes the options of a job as train does. Nothing is started: the figures are those that a run checks itself "
      "against.");
  return [flags, strategies](const Invocation& invocation) {
    if (strategies.text().empty())
      flags->strategies = defaults_for_tables(flags->strategies, flags->job, invocation.app);
    return memory(*flags, invocation);
  };
}

}  // namespace psring::cli
