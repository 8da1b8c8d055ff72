#include <algorithm>
#include <cmath>

#include <psring/common/base/text/error.h>
#include <psring/ring/process_group.h>
#include <psring/worker/model/generate/generator.h>
#include <psring/worker/model/generate/gpt_decoder.h>
#include <psring/worker/model/generate/gpt_weights.h>

namespace psring::worker {
namespace {

WeightFormat wanted_format(const TensorFile& file, const std::string& text) {
  const WeightFormat kept = stored_format(file);
  if (text.empty()) return kept;
  const WeightFormat wanted = WeightFormat::parse("--weights", text);
  if (kept.kind != WeightFormat::Kind::f32 && wanted != kept)
    fail(ErrorKind::usage, "--weights {}: {} holds {} weights already; leave the option out, or give the f32 file",
         text, file.path(), kept.text());
  return wanted;
}

TensorPart part_of(const ring::ProcessGroup* group) {
  return group == nullptr ? TensorPart() : TensorPart(group->rank(), group->size());
}

void check_tokens(const GptShape& shape, const Tokens& tokens, std::size_t index) {
  if (tokens.empty())
    fail(ErrorKind::usage, "prompt {} is empty: the model needs at least one token to continue", index);
  const auto odd =
      std::find_if(tokens.begin(), tokens.end(), [&](std::uint32_t token) { return token >= shape.vocab; });
  if (odd != tokens.end())
    fail(ErrorKind::usage, "prompt {}: token {} at position {} is not one of the model's vocabulary of {}", index, *odd,
         odd - tokens.begin(), shape.vocab);
}

/// A prompt that is being continued.
struct Sequence {
  Tokens tokens;  ///< the prompt and the new tokens
  std::size_t made = 0;
  bool done = false;
};

}  // namespace

double TextLoss::perplexity() const { return std::exp(mean()); }

TextLoss& TextLoss::operator+=(const TextLoss& more) {
  loss_sum += more.loss_sum;
  tokens += more.tokens;
  others += more.others;
  received_bytes += more.received_bytes;
  return *this;
}

void check_prompts(const GptShape& shape, std::span<const Tokens> prompts, std::size_t tokens) {
  const std::size_t context = shape.context;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    check_tokens(shape, prompts[i], i);
    if (prompts[i].size() > context)
      fail(ErrorKind::usage, "prompt {} has {} tokens, but the model's context is {}", i, prompts[i].size(), context);
    if (tokens > context - prompts[i].size() + 1)
      fail(ErrorKind::usage,
           "{} new tokens do not fit after prompt {}, which has {}: with a context of {}, at most {} fit", tokens, i,
           prompts[i].size(), context, context - prompts[i].size() + 1);
  }
}

struct Generator::State {
  State(const TensorFile& file, const Options& options)
      : weights(file, find_gpt_shape(file, options.model), wanted_format(file, options.weights), memory,
                part_of(options.group)),
        decoder(weights, options.threads, memory) {
    if (options.group == nullptr) return;
    Buffer exchange(GptDecoder::exchange_bytes(weights.shape()), Category::communication, memory,
                    options.group->arena());
    weights.part().connect(*options.group, clock, std::move(exchange));
  }

  KvCache make_cache(std::span<const std::size_t> lengths) {
    return KvCache(weights.shape(), lengths, cache_memory, weights.part());
  }

  SystemClock clock;
  MemoryLedger memory;
  MemoryLedger cache_memory;
  GptWeights weights;
  GptDecoder decoder;
};

Generator::Generator(const Options& options) {
  const TensorFile file(options.file);
  state_ = std::make_unique<State>(file, options);
}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

std::size_t Generator::exchange_bytes(const Options& options) {
  return GptDecoder::exchange_bytes(find_gpt_shape(TensorFile(options.file), options.model));
}

const TensorPart& Generator::part() const { return state_->weights.part(); }
const GptShape& Generator::shape() const { return state_->weights.shape(); }
const WeightFormat& Generator::weights() const { return state_->weights.format(); }
const char* Generator::kernels() const { return panel_kernels().name; }

Generated Generator::generate(std::span<const Tokens> prompts, const GenerateOptions& options,
                              const OnToken& on_token) {
  State& state = *state_;
  check_prompts(state.weights.shape(), prompts, options.tokens);
  Generated result;
  result.sequences.resize(prompts.size());
  if (prompts.empty() || options.tokens == 0) return result;
  const Moment begin = state.clock.now();
  std::vector<std::size_t> lengths;
  std::vector<Sequence> sequences;
  for (const Tokens& prompt : prompts) {
    lengths.push_back(prompt.size() + options.tokens - 1);
    sequences.push_back({.tokens = prompt});
  }
  KvCache cache = state.make_cache(lengths);
  result.cache_bytes = state.cache_memory.current_bytes();
  const std::uint64_t received = state.decoder.received_bytes();
  const Nanoseconds waited = part().waited();
  const Range own = state.weights.cut().tokens.ranges.front();
  TokenSampler sampler(options.sampling);
  std::vector<DecoderRow> rows;
  for (std::size_t step = 0; step < options.tokens; ++step) {
    rows.clear();
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const Tokens& tokens = sequences[s].tokens;
      if (sequences[s].done) continue;
      const std::size_t first = options.cache && step > 0 ? tokens.size() - 1 : 0;
      for (std::size_t p = first; p < tokens.size(); ++p)
        rows.push_back({.token = tokens[p],
                        .sequence = static_cast<std::uint32_t>(s),
                        .position = static_cast<std::uint32_t>(p),
                        .logits = p + 1 == tokens.size()});
    }
    if (rows.empty()) break;
    const auto logits = state.decoder.run(rows, cache);
    result.rows += rows.size();
    result.logits += logits.size();
    for (const DecoderRow& row : rows) result.others += own.contains({row.token, row.token + 1}) ? 0 : 1;
    std::size_t next = 0;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      Sequence& sequence = sequences[s];
      if (sequence.done) continue;
      const std::uint32_t token = sampler.choose(logits[next++], s, step);
      if (token == options.stop) {
        sequence.done = true;
        continue;
      }
      sequence.tokens.push_back(token);
      result.sequences[s].push_back(token);
      ++result.new_tokens;
      if (on_token) on_token(s, token);
    }
    const double now = seconds(state.clock.now() - begin);
    if (step == 0)
      result.prefill_s = now;
    else
      ++result.steps;
    result.decode_s = now - result.prefill_s;
  }
  result.received_bytes = state.decoder.received_bytes() - received;
  result.exchange_s = seconds(part().waited() - waited);
  return result;
}

std::vector<float> Generator::logits(const Tokens& tokens) {
  State& state = *state_;
  check_prompts(state.weights.shape(), {&tokens, 1}, 1);
  const std::size_t length = tokens.size();
  KvCache cache = state.make_cache({&length, 1});
  std::vector<DecoderRow> rows;
  for (std::size_t p = 0; p < length; ++p)
    rows.push_back({.token = tokens[p], .position = static_cast<std::uint32_t>(p), .logits = true});
  std::vector<float> result;
  for (const auto& row : state.decoder.run(rows, cache)) result.insert(result.end(), row.begin(), row.end());
  return result;
}

TextLoss Generator::loss(const Tokens& tokens, const Tokens& targets) {
  State& state = *state_;
  const std::size_t vocab = state.weights.shape().vocab;
  psring::check(tokens.size() == targets.size(), "{} tokens, {} targets", tokens.size(), targets.size());
  check_prompts(state.weights.shape(), {&tokens, 1}, 1);
  check_tokens(state.weights.shape(), targets, 0);
  const std::size_t length = tokens.size();
  KvCache cache = state.make_cache({&length, 1});
  TextLoss result;
  const std::uint64_t received = state.decoder.received_bytes();
  const Range own = state.weights.cut().tokens.ranges.front();
  for (const std::uint32_t token : tokens) result.others += own.contains({token, token + 1}) ? 0 : 1;
  std::vector<DecoderRow> rows;
  for (std::size_t begin = 0; begin < length; begin += GptDecoder::kMostRows) {  // bounds the logits' memory
    rows.clear();
    for (std::size_t p = begin; p < std::min(length, begin + GptDecoder::kMostRows); ++p)
      rows.push_back({.token = tokens[p], .position = static_cast<std::uint32_t>(p), .logits = true});
    std::size_t target = begin;
    for (const auto& row : state.decoder.run(rows, cache)) {
      const float most = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (std::size_t j = 0; j < vocab; ++j) sum += std::exp(static_cast<double>(row[j] - most));
      result.loss_sum += std::log(sum) + static_cast<double>(most) - static_cast<double>(row[targets[target++]]);
    }
    result.tokens += rows.size();
  }
  result.received_bytes = state.decoder.received_bytes() - received;
  return result;
}

void Generator::save(const std::string& file) const {
  if (weights().kind == WeightFormat::Kind::f32)
    fail(ErrorKind::usage, "--weights f32: there is nothing to quantise; give int8 or int4");
  state_->weights.save(file);
}

std::size_t Generator::weight_bytes() const { return state_->memory.peak_bytes(Category::parameters); }
std::size_t Generator::scratch_bytes() const { return state_->memory.peak_bytes(Category::activations); }
double Generator::measure_bandwidth() {
  // A buffer as large as the weights, so that both come from the same level of the memory hierarchy.
  MemoryLedger unbooked;
  Buffer buffer(round_up(weight_bytes(), 64), Category::parameters, unbooked);
  const auto floats = buffer.as<float>();
  std::fill(floats.begin(), floats.end(), 1.0F);
  const std::size_t rounds = std::max<std::size_t>(5, (std::size_t{1} << 28) / buffer.size_bytes());
  double best = 0;
  float time = 0;
  for (std::size_t i = 0; i < rounds; ++i) {
    part().largest({&time, 1});  // all ranks begin together
    const Moment begin = state_->clock.now();
    const float sum = panel_kernels().sum(floats.data(), floats.size());
    time = static_cast<float>(seconds(state_->clock.now() - begin));
    psring::check(sum > 0, "the sum of ones is {}", sum);
    part().largest({&time, 1});
    best = std::max(best, static_cast<double>(buffer.size_bytes()) / static_cast<double>(time));
  }
  return best;
}

}  // namespace psring::worker
