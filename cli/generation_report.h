#pragma once

#include <optional>
#include <string>
#include <vector>

#include <psring/worker/model/generate/generator.h>

namespace psring::cli {

/// The measurements of one `psring generate`.
struct GenerationReport {
  std::vector<worker::Tokens> prompts;
  std::size_t threads = 1;
  bool cache = true;
  worker::Generated made;
  std::optional<worker::Generated> recomputed;  ///< the same without a cache
  double bandwidth = 0;                         ///< bytes per second; 0: not measured

  std::size_t prompt_tokens() const;
  /// The tokens that each sequence's cache holds.
  std::vector<std::size_t> cached_tokens(std::size_t tokens) const;
};

/// Throws check_failed if the booked bytes of weights or cache differ from their formulas, or if the tokens with and
/// without a cache differ.
void check_generation(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens);

/// Returns lines for a terminal, and the same figures as JSON text.
std::string generation_text(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens);
std::string generation_json(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens,
                            const std::vector<std::string>& texts);

}  // namespace psring::cli
