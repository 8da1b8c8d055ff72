#include <array>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include <psring/cli/generate/generation_report.h>
#include <psring/cli/memory/memory_formulas.h>
#include <psring/cli/text_table.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/model/generate/gpt_decoder.h>
#include <psring/worker/model/generate/gpt_weights.h>
#include <psring/worker/model/generate/kv_cache.h>

namespace psring::cli {
namespace {

using worker::Generated;
using worker::Generator;
using worker::GptShape;

double per_step(const Generated& made) { return made.steps == 0 ? 0 : made.decode_s / static_cast<double>(made.steps); }
double total(const Generated& made) { return made.prefill_s + made.decode_s; }
double per_second(std::size_t count, double time) { return time > 0 ? static_cast<double>(count) / time : 0; }
std::string time_text(double time) {
  return time < 1e-3 ? fmt::format("{:.1f} us", 1e6 * time) : fmt::format("{:.2f} ms", 1e3 * time);
}
std::string mib(std::size_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::size_t bits_of(const worker::WeightFormat& format) {
  using Kind = worker::WeightFormat::Kind;
  return format.kind == Kind::f32 ? 32 : format.kind == Kind::int8 ? 8 : 4;
}

/// The figures of `psring memory --parameters N --inference`, of the same size, for the longest sequence.
std::vector<MemoryTerm> calculated(const GenerationReport& report, const Generator& generator, std::size_t tokens) {
  const GptShape& shape = generator.shape();
  std::size_t longest = 0;
  for (const std::size_t length : report.cached_tokens(tokens))
    longest = std::max(longest, round_up(length, worker::KvCache::kGrain));
  return inference_memory({.size = {.parameters = static_cast<double>(worker::parameter_count(shape)),
                                    .layers = shape.layers,
                                    .dim = shape.dim,
                                    .heads = shape.heads,
                                    .context = longest},
                           .weight_bits = bits_of(generator.weights()),
                           .cache_bytes = 4,
                           .batch = report.prompts.size()});
}

/// Floating-point operations of computing the positions [first, last) of a sequence, and one row of logits.
double operations(const GptShape& shape, std::size_t first, std::size_t last) {
  const auto dim = static_cast<double>(shape.dim);
  const auto layers = static_cast<double>(shape.layers);
  const auto rows = static_cast<double>(last - first);
  const double pairs = 0.5 * rows * static_cast<double>(first + last + 1);
  return layers * (24 * dim * dim * rows + 4 * dim * pairs) + 2 * dim * static_cast<double>(shape.vocab);
}

std::string comparison(const GenerationReport& report, const Generator& generator, std::size_t tokens) {
  const GptShape& shape = generator.shape();
  const Generated& fast = report.made;
  const Generated& slow = *report.recomputed;
  double cached = 0;
  double all = 0;
  for (const worker::Tokens& prompt : report.prompts)
    for (std::size_t step = 0; step < tokens; ++step) {
      const std::size_t last = prompt.size() + step;
      cached += operations(shape, step == 0 ? 0 : last - 1, last);
      all += operations(shape, 0, last);
    }
  TextTable table({"", "first token", "each next", fmt::format("{} tokens", tokens), "GFLOP"});
  const auto row = [&](const char* name, const Generated& made, double flops) {
    table.add({name, time_text(made.prefill_s), time_text(per_step(made)), time_text(total(made)),
               fmt::format("{:.2f}", flops / 1e9)});
  };
  row("with a KV cache", fast, cached);
  row("recomputing all", slow, all);
  return fmt::format("\n{}prefill + {} x decode = {} + {} x {} = {}; recomputing all takes {:.1f} times as long\n",
                     table.plain(), fast.steps, time_text(fast.prefill_s), fast.steps, time_text(per_step(fast)),
                     time_text(total(fast)), total(slow) / total(fast));
}

std::string bound_line(const GenerationReport& report, const Generator& generator) {
  const auto bytes =
      static_cast<double>(worker::decode_bytes(generator.shape(), generator.weights(), generator.part()));
  const double least = bytes / report.bandwidth;
  std::string text = fmt::format("bound      reading {:.2f} MB of weights at {:.1f} GB/s takes {}", bytes / 1e6,
                                 report.bandwidth / 1e9, time_text(least));
  if (report.made.steps > 0)
    text += fmt::format("; decode reaches {:.0f} % of it", 100 * least / per_step(report.made));
  return text + "\n";
}

/// A number that tells sequences of tokens apart, with room for the sign.
std::int64_t fingerprint(const std::vector<worker::Tokens>& sequences) {
  std::uint64_t hash = 14695981039346656037U;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
  for (const worker::Tokens& tokens : sequences) {
    add(tokens.size());
    for (const std::uint32_t token : tokens) add(token);
  }
  return static_cast<std::int64_t>(hash >> 1U);
}

std::size_t total(const GenerationReport& report, std::size_t RankFigures::*figure) {
  return std::accumulate(report.ranks.begin(), report.ranks.end(), std::size_t{0},
                         [&](std::size_t sum, const RankFigures& rank) { return sum + rank.*figure; });
}

/// A line for each rank: its weights, its part of the cache by formula, its buffers.
std::string memory_lines(const GenerationReport& report, const GptShape& shape, std::size_t tokens) {
  const std::size_t ranks = report.ranks.size();
  std::size_t held = 0;
  for (const std::size_t length : report.cached_tokens(tokens)) held += round_up(length, worker::KvCache::kGrain);
  std::string text;
  for (std::size_t r = 0; r < ranks; ++r) {
    const RankFigures& rank = report.ranks[r];
    text += fmt::format("{:<11}weights {}; KV cache 2 x {} layers x {} tokens x {} x 4 B = {}; buffers {}",
                        ranks > 1 ? fmt::format("rank {}", r) : "memory", mib(rank.weight_bytes), shape.layers, held,
                        shape.dim / ranks, mib(rank.cache_bytes), mib(rank.buffer_bytes));
    text += ranks > 1 ? fmt::format("; exchange {}\n", mib(rank.exchange_bytes)) : "\n";
  }
  return text;
}

std::string exchange_line(const GenerationReport& report) {
  const Generated& made = report.made;
  return fmt::format("exchange   rank 0 received {} of results, and was {} of {} in exchanges\n",
                     mib(made.received_bytes), time_text(made.exchange_s), time_text(total(made)));
}

void check_received(std::uint64_t received, const Generator& generator, std::uint64_t rows, std::uint64_t logits,
                    std::uint64_t others) {
  if (generator.part().whole()) return;
  const std::uint64_t formula = worker::received_bytes(generator.shape(), generator.part(), rows, logits, others);
  if (received != formula)
    fail(ErrorKind::check_failed, "exchange: {} bytes were received, the formula gives {}", received, formula);
}

}  // namespace

std::size_t GenerationReport::prompt_tokens() const {
  return std::accumulate(prompts.begin(), prompts.end(), std::size_t{0},
                         [](std::size_t sum, const worker::Tokens& prompt) { return sum + prompt.size(); });
}

std::vector<std::size_t> GenerationReport::cached_tokens(std::size_t tokens) const {
  std::vector<std::size_t> lengths;
  for (const worker::Tokens& prompt : prompts) lengths.push_back(prompt.size() + tokens - 1);
  return lengths;
}

void check_generation(const GenerationReport& report, const Generator& generator, std::size_t tokens) {
  const auto compare = [](const char* name, std::size_t booked, std::size_t formula) {
    if (booked != formula)
      fail(ErrorKind::check_failed, "{}: {} bytes are booked, the formula gives {}", name, booked, formula);
  };
  const GptShape& shape = generator.shape();
  const worker::TensorPart& part = generator.part();
  compare("weights", generator.weight_bytes(), worker::weight_bytes(shape, generator.weights(), part));
  compare("KV cache", report.made.cache_bytes, worker::KvCache::size_bytes(shape, report.cached_tokens(tokens), part));
  const Generated& made = report.made;
  check_received(made.received_bytes, generator, made.rows, made.logits, made.others);
  if (report.recomputed && report.recomputed->sequences != report.made.sequences)
    fail(ErrorKind::check_failed, "the tokens with and without a KV cache differ");
}

void check_evaluation(const worker::TextLoss& loss, const Generator& generator) {
  check_received(loss.received_bytes, generator, loss.tokens, loss.tokens, loss.others);
}

void collect_ranks(GenerationReport& report, const Generator& generator, ring::ProcessGroup* group) {
  const RankFigures own{
      .weight_bytes = generator.weight_bytes(),
      .cache_bytes = report.made.cache_bytes,
      .buffer_bytes = generator.scratch_bytes(),
      .exchange_bytes = generator.part().memory_bytes(),
      .received_bytes = report.made.received_bytes,
  };
  report.ranks = {own};
  if (group == nullptr) return;
  constexpr std::size_t kFigures = 6;
  std::vector<std::int64_t> all(group->size() * kFigures);
  const std::array<std::size_t, kFigures - 1> figures{own.weight_bytes, own.cache_bytes, own.buffer_bytes,
                                                      own.exchange_bytes, own.received_bytes};
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(group->rank() * kFigures);
  std::copy(figures.begin(), figures.end(), begin);
  begin[kFigures - 1] = fingerprint(report.made.sequences);
  group->all_gather(std::span(all), ring::even_parts(all.size(), group->size())).wait();
  report.ranks.clear();
  for (std::size_t r = 0; r < group->size(); ++r) {
    const auto of = [&](std::size_t i) { return static_cast<std::size_t>(all[r * kFigures + i]); };
    report.ranks.push_back({of(0), of(1), of(2), of(3), of(4)});
    if (all[r * kFigures + kFigures - 1] != fingerprint(report.made.sequences))
      fail(ErrorKind::check_failed, "tensor rank {} has chosen other tokens than rank {}", r, group->rank());
  }
}

std::string generation_text(const GenerationReport& report, const Generator& generator, std::size_t tokens) {
  const GptShape& shape = generator.shape();
  const Generated& made = report.made;
  std::string text =
      fmt::format("model      {}: {:.2f} M parameters in {}, {}, {}{}\n", worker::gpt_text(shape),
                  static_cast<double>(worker::parameter_count(shape)) / 1e6, generator.weights().text(),
                  generator.kernels(), report.ranks.size() > 1 ? fmt::format("{} ranks of ", report.ranks.size()) : "",
                  count_of(report.threads, "thread"));
  text += memory_lines(report, shape, tokens);
  text += fmt::format("prefill    {} tokens in {}, {:.0f} tokens/s\n", report.prompt_tokens(),
                      time_text(made.prefill_s), per_second(report.prompt_tokens(), made.prefill_s));
  if (made.steps > 0)
    text += fmt::format("decode     {} steps of {}, {:.1f} tokens/s\n", made.steps, time_text(per_step(made)),
                        per_second(made.new_tokens - std::min(made.new_tokens, report.prompts.size()), made.decode_s));
  if (report.ranks.size() > 1) text += exchange_line(report);
  if (report.bandwidth > 0) {
    text += bound_line(report, generator);
    const std::vector<MemoryTerm> terms = calculated(report, generator, tokens);
    const auto share = [](std::size_t booked, double formula) {
      return fmt::format("{} ({:+.1f} % booked)", mib(static_cast<std::size_t>(formula)),
                         100 * (static_cast<double>(booked) / formula - 1));
    };
    text += fmt::format("calculator weights {}; KV cache {}\n",
                        share(total(report, &RankFigures::weight_bytes), terms[0].bytes),
                        share(total(report, &RankFigures::cache_bytes), terms[1].bytes));
  }
  if (report.recomputed) text += comparison(report, generator, tokens);
  return text;
}

std::string generation_json(const GenerationReport& report, const Generator& generator, std::size_t tokens,
                            const std::vector<std::string>& texts) {
  Json document = {{"model", worker::gpt_text(generator.shape())},
                   {"weights", generator.weights().text()},
                   {"kernels", generator.kernels()},
                   {"threads", report.threads},
                   {"cache", report.cache},
                   {"parameters", worker::parameter_count(generator.shape())},
                   {"weight_bytes", total(report, &RankFigures::weight_bytes)},
                   {"cache_bytes", total(report, &RankFigures::cache_bytes)},
                   {"buffer_bytes", total(report, &RankFigures::buffer_bytes)},
                   {"prompt_tokens", report.prompt_tokens()},
                   {"prefill_s", report.made.prefill_s},
                   {"decode_s", report.made.decode_s},
                   {"steps", report.made.steps},
                   {"new_tokens", report.made.new_tokens}};
  if (report.ranks.size() > 1) {
    document["exchange_s"] = report.made.exchange_s;
    document["ranks"] = Json::array();
    for (const RankFigures& rank : report.ranks)
      document["ranks"].push_back({{"weight_bytes", rank.weight_bytes},
                                   {"cache_bytes", rank.cache_bytes},
                                   {"buffer_bytes", rank.buffer_bytes},
                                   {"exchange_bytes", rank.exchange_bytes},
                                   {"received_bytes", rank.received_bytes}});
  }
  if (report.bandwidth > 0) {
    document["bandwidth"] = report.bandwidth;
    document["decode_bytes"] = worker::decode_bytes(generator.shape(), generator.weights(), generator.part());
    const std::vector<MemoryTerm> terms = calculated(report, generator, tokens);
    document["calculated"] = {{"weights", terms[0].bytes}, {"cache", terms[1].bytes}};
  }
  if (report.recomputed)
    document["recomputed"] = {{"prefill_s", report.recomputed->prefill_s}, {"decode_s", report.recomputed->decode_s}};
  document["sequences"] = Json::array();
  for (std::size_t i = 0; i < report.prompts.size(); ++i) {
    Json sequence = {{"prompt", report.prompts[i]}, {"tokens", report.made.sequences[i]}};
    if (!texts.empty()) sequence["text"] = texts[i];
    document["sequences"].push_back(std::move(sequence));
  }
  return document.dump_any_bytes();
}

}  // namespace psring::cli
