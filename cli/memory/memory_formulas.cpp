#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include <psring/cli/memory/memory_formulas.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/exchange/memory_formula.h>

namespace psring::cli {
namespace {

/// Bytes of activations that one layer keeps for a sample of `context` tokens: s * h * (34 + 5 * a * s / h) in 16 bits
/// (Korthikanti et al. 2022, arXiv:2205.05198, equation 1); with checkpointing the layer's input alone.
double layer_activations(const TransformerSize& size, bool checkpointing) {
  const auto s = static_cast<double>(size.context);
  const auto h = static_cast<double>(size.dim);
  if (checkpointing) return 2 * s * h;
  return s * h * (34 + 5 * static_cast<double>(size.number_of_heads()) * s / h);
}

std::string divided(std::string text, std::size_t among) {
  return among > 1 ? fmt::format("{} / {}", text, among) : text;
}

}  // namespace

std::size_t TransformerSize::number_of_heads() const { return heads > 0 ? heads : std::max<std::size_t>(1, dim / 128); }

std::vector<MemoryTerm> training_memory(const TrainingMemory& of, std::size_t stage, Language language) {
  const auto parameters = static_cast<std::uint64_t>(of.size.parameters);
  const std::size_t width = size_bytes(of.type);
  const bool master = of.type != DType::f32 && of.master_copy;
  const double slot_bytes = of.state_bits == 8 ? 1 + 4 / static_cast<double>(of.state_block) : 4;
  const double state = static_cast<double>(of.slots) * slot_bytes + (master ? 4 : 0);
  const worker::Shares shares{.parameters = stage >= 3 ? of.workers : 1,
                              .gradients = stage >= 2 ? of.workers : 1,
                              .optimizer = stage >= 1 ? of.workers : 1};
  auto bytes = worker::memory_formula({.parameter_bytes = width * parameters,
                                       .gradient_bytes = width * parameters,
                                       .trained = parameters,
                                       .state_bytes = state},
                                      shares);
  const std::string count = fmt::format("{:.4g}", of.size.parameters);
  const std::string each = fmt::format("{} B x {}", width, count);
  std::string state_text = fmt::format("{:.5g} B x {}", static_cast<double>(of.slots) * slot_bytes, count);
  if (master) state_text = fmt::format("({:.5g} + 4) B x {}", static_cast<double>(of.slots) * slot_bytes, count);
  std::vector<MemoryTerm> terms{
      {"parameters", divided(each, shares.parameters), static_cast<double>(bytes[Category::parameters])},
      {"gradients", divided(each, shares.gradients), static_cast<double>(bytes[Category::gradients])},
      {"optimizer", divided(state_text, shares.optimizer), static_cast<double>(bytes[Category::optimizer])}};
  if (!of.size.has_shape()) return terms;
  const TransformerSize& size = of.size;
  const double wider = static_cast<double>(width) / 2;  // the formulas count 16-bit values
  const double kept = layer_activations(size, of.checkpointing) * wider;
  double activations = kept * static_cast<double>(size.layers * of.batch);
  std::string text =
      say(language, {"{} x {} layers x {:.4g} MiB", "{} x {} 层 x {:.4g} MiB"}, of.batch, size.layers, kept / 1048576);
  if (of.checkpointing) {  // the layer that runs again keeps all of its own
    const double whole = layer_activations(size, false) * wider;
    activations += whole * static_cast<double>(of.batch);
    text = say(language, {"{} x ({} layers x {:.4g} + {:.4g} MiB)", "{} x ({} 层 x {:.4g} + {:.4g} MiB)"}, of.batch,
               size.layers, kept / 1048576, whole / 1048576);
  }
  terms.push_back({"activations", text, activations});
  return terms;
}

std::vector<MemoryTerm> inference_memory(const InferenceMemory& of, Language language) {
  const double weights = of.size.parameters * static_cast<double>(of.weight_bits) / 8;
  std::vector<MemoryTerm> terms{
      {"weights", say(language, {"{} bits x {:.4g} / 8", "{} 位 x {:.4g} / 8"}, of.weight_bits, of.size.parameters),
       weights}};
  if (of.size.has_shape()) {
    const std::size_t width =
        of.size.kv_heads == 0 ? of.size.dim : of.size.dim / of.size.number_of_heads() * of.size.kv_heads;
    const double cache = 2.0 * static_cast<double>(of.size.layers) * static_cast<double>(of.size.context) *
                         static_cast<double>(width) * static_cast<double>(of.cache_bytes * of.batch);
    terms.push_back(
        {"KV cache",
         say(language, {"2 x {} layers x {} tokens x {} x {} B x {}", "2 x {} 层 x {} token x {} x {} B x {}"},
             of.size.layers, of.size.context, width, of.cache_bytes, of.batch),
         cache});
  }
  terms.push_back(
      {"overhead", say(language, {"{:.4g} x weights", "{:.4g} x 权重"}, of.overhead), of.overhead * weights});
  return terms;
}

double total_bytes(const std::vector<MemoryTerm>& terms) {
  return std::accumulate(terms.begin(), terms.end(), 0.0,
                         [](double sum, const auto& term) { return sum + term.bytes; });
}

double parse_parameters(const std::string& flag, const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const char* const end = std::from_chars(text.data(), last, value).ptr;  // leaves 0 if there is no number
  std::string unit(end, last);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::toupper(c); });
  value *= unit == "T" ? 1e12 : unit == "B" ? 1e9 : unit == "M" ? 1e6 : unit == "K" ? 1e3 : 1;
  const bool known = unit.empty() || unit == "T" || unit == "B" || unit == "M" || unit == "K";
  const bool whole = std::abs(value - std::round(value)) <= 1e-9 * value;
  if (!known || !whole || !(value >= 1) || value > 1e15)
    fail(ErrorKind::usage, "{}: expected a number of parameters such as 125M or 7B, got '{}'", flag, text);
  return std::round(value);
}

}  // namespace psring::cli
