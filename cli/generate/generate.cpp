// psring generate: a trained GPT continues a text, or is evaluated on one.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <psring/cli/commands.h>
#include <psring/cli/generate/generation_report.h>
#include <psring/cli/train/tensor_ranks.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/data/tokenizer/tokenizer.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/safetensors.h>

namespace psring::cli {
namespace {

using worker::Generator;
using worker::Tokenizer;
using worker::Tokens;

struct GenerateFlags {
  Generator::Options model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_tokens;
  std::string prompt_file;
  std::string tokenizer;
  worker::GenerateOptions generate;
  int seed = 1;
  std::string cache = "on";
  std::string evaluate;
  bool measure = false;
  bool json = false;
  std::size_t tensor = 1;
  TensorRanks::Place place;

  bool prints() const { return place.rank == 0; }
};

void check_flags(const GenerateFlags& flags) {
  const worker::Sampling& sampling = flags.generate.sampling;
  if (flags.cache != "on" && flags.cache != "off")
    fail(ErrorKind::usage, "--cache {}: expected on or off", flags.cache);
  if (flags.measure && flags.cache == "off")
    fail(ErrorKind::usage, "--measure: runs with and without a cache itself; leave --cache out");
  if (!(sampling.temperature >= 0 && sampling.temperature <= 1000))
    fail(ErrorKind::usage, "--temperature {}: expected a number from 0 (greedy) to 1000", sampling.temperature);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    fail(ErrorKind::usage, "--top-p {}: expected a number above 0 and at most 1", sampling.top_p);
  if (flags.generate.tokens == 0) fail(ErrorKind::usage, "--tokens 0: expected at least one");
  if (flags.model.threads == 0 || flags.model.threads > 1024)
    fail(ErrorKind::usage, "--threads {}: expected from 1 to 1024", flags.model.threads);
  if (flags.tensor == 0) fail(ErrorKind::usage, "--tensor 0: expected at least 1");
  if (flags.place.rank > 0 && (flags.place.rank >= flags.tensor || flags.place.key_file.empty()))
    fail(ErrorKind::usage, "--tensor-rank {}: psring gives this option to the ranks that it starts", flags.place.rank);
  if (flags.tensor > 1 && !flags.prompt_file.empty() && std::filesystem::exists(flags.prompt_file) &&
      !std::filesystem::is_regular_file(flags.prompt_file))
    fail(ErrorKind::usage, "--prompt-file {}: with --tensor every rank reads it, so it has to be a regular file",
         flags.prompt_file);
  if (flags.seed < 0) fail(ErrorKind::usage, "--seed {}: expected 0 or above", flags.seed);
  const bool prompt = !flags.prompts.empty() || !flags.prompt_tokens.empty() || !flags.prompt_file.empty();
  if (prompt && !flags.evaluate.empty()) fail(ErrorKind::usage, "--evaluate and --prompt: give one of them");
  if (!prompt && flags.evaluate.empty())
    fail(ErrorKind::usage, "nothing to do: give --prompt, --prompt-file, --prompt-tokens or --evaluate");
  if (!flags.evaluate.empty() && flags.measure) fail(ErrorKind::usage, "--measure: means nothing with --evaluate");
  if (sampling.temperature > 0) return;
  if (sampling.top_k > 0) fail(ErrorKind::usage, "--top-k: means nothing with --temperature 0");
  if (sampling.top_p < 1) fail(ErrorKind::usage, "--top-p: means nothing with --temperature 0");
}

/// The given tokenizer, else the one beside the model; a model of at most 256 tokens reads bytes. Nothing if there is
/// none.
std::optional<Tokenizer> find_tokenizer(const GenerateFlags& flags, std::size_t vocab) {
  if (!flags.tokenizer.empty()) {
    Tokenizer tokenizer = Tokenizer::load(flags.tokenizer);
    if (tokenizer.size() > vocab)
      fail(ErrorKind::data, "--tokenizer {}: has {} tokens, the model's vocabulary {}", flags.tokenizer,
           tokenizer.size(), vocab);
    return tokenizer;
  }
  if (vocab <= 256) return Tokenizer::bytes();
  std::filesystem::path folder = std::filesystem::path(flags.model.file).parent_path();
  if (folder.empty()) folder = ".";
  for (const char* name : {"merges.txt", "tokenizer.json"})
    if (std::filesystem::exists(folder / name)) return Tokenizer::load(folder.string());
  return std::nullopt;
}

Tokens parse_tokens(const std::string& text) {
  Tokens tokens;
  if (text.empty()) return tokens;
  for (const std::string& part : split(text)) {
    const std::size_t token = parse_count("--prompt-tokens", part);
    if (token > UINT32_MAX - 1) fail(ErrorKind::usage, "--prompt-tokens: {} is no token", token);
    tokens.push_back(static_cast<std::uint32_t>(token));
  }
  return tokens;
}

std::string prompt_text(const std::string& path) {
  try {
    return plain_text(read_stream(path), path);
  } catch (const Error& error) {
    fail(error.kind(), "--prompt-file {}", error.what());
  }
}

std::vector<std::string> read_lines(const std::string& path) {
  const std::string text = prompt_text(path);
  std::vector<std::string> lines;
  for (const std::string_view line : lines_of(text)) lines.emplace_back(line);
  if (lines.empty()) fail(ErrorKind::data, "--prompt-file {}: has no line", path);
  return lines;
}

/// An empty prompt is <|endoftext|>, after which GPT-2 begins a text; a model of bytes has no such token.
Tokens encode_prompt(Tokenizer& tokenizer, const std::string& text) {
  if (!text.empty()) return tokenizer.encode(text);
  if (tokenizer.end_of_text()) return {*tokenizer.end_of_text()};
  fail(ErrorKind::usage, "--prompt: is empty, and the vocabulary has no {} to begin with; give at least one byte",
       worker::kEndOfText);
}

std::vector<Tokens> find_prompts(const GenerateFlags& flags, std::optional<Tokenizer>& tokenizer) {
  std::vector<std::string> texts = flags.prompts;
  if (!flags.prompt_file.empty())
    for (std::string& line : read_lines(flags.prompt_file)) texts.push_back(std::move(line));
  if (!texts.empty() && !tokenizer)
    fail(ErrorKind::usage, "the model's vocabulary is not of bytes: give --tokenizer, or --prompt-tokens");
  std::vector<Tokens> prompts;
  for (const std::string& text : texts) prompts.push_back(encode_prompt(*tokenizer, text));
  for (const std::string& text : flags.prompt_tokens) prompts.push_back(parse_tokens(text));
  return prompts;
}

std::string text_of(const std::optional<Tokenizer>& tokenizer, const Tokens& tokens) {
  if (!tokenizer) return fmt::format("{}", fmt::join(tokens, ","));
  std::string text;
  for (const std::uint32_t token : tokens)
    text += token < tokenizer->size() ? tokenizer->token(token) : fmt::format("<{}>", token);
  return text;
}

void print_bytes(const std::string& text) { out::text(text); }

/// Prints a single sequence while it grows.
Generator::OnToken printer(const GenerateFlags& flags, const std::vector<Tokens>& prompts,
                           const std::optional<Tokenizer>& tokenizer) {
  if (flags.json || prompts.size() > 1) return {};
  print_bytes(text_of(tokenizer, prompts[0]));
  return [&tokenizer](std::size_t, std::uint32_t token) {
    print_bytes((tokenizer ? "" : ",") + text_of(tokenizer, {token}));
    std::fflush(stdout);
  };
}

/// Everything about a generation that can be wrong before the weights are read.
struct Prepared {
  std::optional<Tokenizer> tokenizer;
  std::vector<Tokens> prompts;
  worker::GenerateOptions options;
};

Prepared prepare(const GenerateFlags& flags, const worker::GptShape& shape) {
  Prepared work{.tokenizer = find_tokenizer(flags, shape.vocab), .options = flags.generate};
  work.options.sampling.seed = static_cast<std::uint64_t>(flags.seed);
  work.options.cache = flags.cache == "on";
  if (work.tokenizer && work.tokenizer->end_of_text()) work.options.stop = *work.tokenizer->end_of_text();
  work.prompts = find_prompts(flags, work.tokenizer);
  worker::check_prompts(shape, work.prompts, work.options.tokens);
  return work;
}

void print_report(const GenerateFlags& flags, const GenerationReport& report, const Generator& generator,
                  const std::optional<Tokenizer>& tokenizer) {
  const std::size_t tokens = flags.generate.tokens;
  if (flags.json) {
    std::vector<std::string> texts;
    for (const Tokens& sequence : report.made.sequences)
      if (tokenizer) texts.push_back(text_of(tokenizer, sequence));
    out::print("{}\n", generation_json(report, generator, tokens, texts));
    return;
  }
  for (std::size_t i = 0; report.prompts.size() > 1 && i < report.prompts.size(); ++i)
    print_bytes(fmt::format("[{}] {}{}{}\n", i, text_of(tokenizer, report.prompts[i]), tokenizer ? "" : ",",
                            text_of(tokenizer, report.made.sequences[i])));
  out::print("{}{}", report.prompts.size() > 1 ? "\n" : "\n\n", generation_text(report, generator, tokens));
}

void continue_prompts(const GenerateFlags& flags, const Prepared& work, Generator& generator,
                      ring::ProcessGroup* group) {
  GenerationReport report;
  report.prompts = work.prompts;
  report.threads = flags.model.threads;
  report.cache = work.options.cache;
  const auto print = flags.prints() ? printer(flags, work.prompts, work.tokenizer) : Generator::OnToken();
  report.made = generator.generate(work.prompts, work.options, print);
  if (flags.measure) {
    worker::GenerateOptions options = work.options;
    options.cache = false;
    report.recomputed = generator.generate(work.prompts, options);
    report.bandwidth = generator.measure_bandwidth();
  }
  check_generation(report, generator, work.options.tokens);
  collect_ranks(report, generator, group);
  if (flags.prints()) print_report(flags, report, generator, work.tokenizer);
}

/// The loss over the same samples as train's evaluation: the test split, or all if the text has none.
void evaluate(const GenerateFlags& flags, Generator& generator, ring::ProcessGroup* group, const App& app) {
  const worker::GptShape& shape = generator.shape();
  const worker::DataNeeds needs{.input_cols = shape.context,
                                .rows_per_sample = shape.context,
                                .classes = shape.vocab,
                                .tokens = true,
                                .model = worker::gpt_text(shape)};
  const worker::DataSplit split =
      worker::make_dataset(app.worker_registries().datasets, Spec::parse("--evaluate", flags.evaluate), needs);
  const worker::Dataset& data = split.test ? *split.test : *split.train;
  worker::TextLoss all;
  std::vector<float> input(shape.context);
  std::vector<std::int32_t> targets(shape.context);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data.read(i, {input, targets});
    all += generator.loss(Tokens(input.begin(), input.end()), Tokens(targets.begin(), targets.end()));
  }
  check_evaluation(all, generator);
  auto weight_bytes = static_cast<std::int64_t>(generator.weight_bytes());
  if (group != nullptr) group->all_reduce(std::span(&weight_bytes, 1), ring::ReduceOp::Kind::sum).wait();
  if (!flags.prints()) return;
  if (flags.json) {
    Json document = {{"weights", generator.weights().text()},
                     {"weight_bytes", weight_bytes},
                     {"tokens", all.tokens},
                     {"loss", all.mean()},
                     {"perplexity", all.perplexity()}};
    if (group != nullptr) document["received_bytes"] = all.received_bytes;
    out::print("{}\n", document.dump());
    return;
  }
  constexpr double kMiB = 1 << 20;
  const std::string exchanged =
      group == nullptr ? ""
                       : fmt::format("; rank 0 received {:.2f} MiB", static_cast<double>(all.received_bytes) / kMiB);
  out::print("{}: {} weights, {:.2f} MiB; {} tokens of {}: loss {:.6f}, perplexity {:.4f}{}\n", flags.model.file,
             generator.weights().text(), static_cast<double>(weight_bytes) / kMiB, all.tokens, flags.evaluate,
             all.mean(), all.perplexity(), exchanged);
}

/// The work of one rank, which may be the only one.
void run_rank(const GenerateFlags& flags, const std::optional<Prepared>& work, ring::ProcessGroup* group,
              const App& app) {
  Generator::Options options = flags.model;
  options.group = group;
  Generator generator(options);
  if (work) {
    continue_prompts(flags, *work, generator, group);
  } else {
    evaluate(flags, generator, group, app);
  }
}

int run_generate(const GenerateFlags& flags, const Invocation& invocation) {
  check_flags(flags);
  const worker::GptShape shape = worker::find_gpt_shape(worker::TensorFile(flags.model.file), flags.model.model);
  if (flags.tensor > shape.heads)
    fail(ErrorKind::usage, "--tensor {}: the model has only {} heads of attention, and each process needs one",
         flags.tensor, shape.heads);
  worker::cut_gpt(shape, worker::TensorPart(0, flags.tensor));  // throws if the model cannot be divided
  std::optional<Prepared> work;
  if (flags.evaluate.empty()) work = prepare(flags, shape);
  if (flags.tensor == 1) {
    run_rank(flags, work, nullptr, invocation.app);
  } else {
    TensorRanks ranks(flags.tensor, flags.place, Generator::exchange_bytes(flags.model), invocation.words);
    ranks.run([&] { run_rank(flags, work, &ranks.group(), invocation.app); });
  }
  return 0;
}

}  // namespace

Command add_generate(const Flags& program) {
  const Flags command = program.add_command("generate", "let a trained GPT continue a text, or evaluate it on one");
  auto flags = std::make_shared<GenerateFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--init", flags->model.file, "safetensors file of the weights: of a run, quantised, or a GPT-2")
      .show_value("FILE")
      .require();
  command.add("--model", flags->model.model, "the model, if the file's folder and tensors do not tell");
  command.add("--weights", flags->model.weights, "round them on loading: f32, int8 or int4:group=64,scheme=affine");
  command.add("--prompt", flags->prompts, "text to continue; several make a batch").allow_empty();
  command.add("--prompt-file", flags->prompt_file, "file with a prompt on each line").show_value("FILE");
  command.add("--prompt-tokens", flags->prompt_tokens, "prompt as token numbers, separated by commas");
  command
      .add("--tokenizer", flags->tokenizer,
           "folder with vocab.json and merges.txt, or tokenizer.json (bytes, or the one beside the weights)")
      .show_value("FILE");
  command.add("--tokens", flags->generate.tokens, "new tokens of each prompt").show_default();
  command.add("--temperature", flags->generate.sampling.temperature, "0 takes the most probable token").show_default();
  command.add("--top-k", flags->generate.sampling.top_k, "draw from the K most probable tokens; 0: all").show_default();
  command.add("--top-p", flags->generate.sampling.top_p, "draw from the fewest tokens with this probability")
      .show_default();
  command.add("--seed", flags->seed, "seed of the draws").show_default();
  command.add("--cache", flags->cache, "keep keys and values (on), or recompute all for every token (off)")
      .show_default();
  command.add("--threads", flags->model.threads, "compute threads; the tokens do not depend on it").show_default();
  command.add("--evaluate", flags->evaluate, "print the loss and perplexity on text:FILE or tokens:FILE");
  command.add_switch("--measure", flags->measure, "also recompute all, and compare with the memory's bandwidth");
  command.add_switch("--json", flags->json, "print JSON");
  command.add("--tensor", flags->tensor, "processes that divide the model; the tokens do not depend on it")
      .show_default();
  command.add("--tensor-rank", flags->place.rank).hide();
  command.add("--tensor-key", flags->place.key_file).hide();
  return [flags](const Invocation& invocation) { return run_generate(*flags, invocation); };
}

}  // namespace psring::cli
