#pragma once

#include <optional>
#include <string>
#include <vector>

#include <psring/ring/process_group.h>
#include <psring/worker/model/generate/generator.h>

namespace psring::cli {

/// The bytes that one rank booked and received.
struct RankFigures {
  std::size_t weight_bytes = 0;
  std::size_t cache_bytes = 0;
  std::size_t buffer_bytes = 0;
  std::size_t exchange_bytes = 0;  ///< the memory through which ranks exchange
  std::size_t received_bytes = 0;
};

/// The measurements of one `psring generate`.
struct GenerationReport {
  std::vector<worker::Tokens> prompts;
  std::size_t threads = 1;
  bool cache = true;
  worker::Generated made;
  std::optional<worker::Generated> recomputed;  ///< the same without a cache
  double bandwidth = 0;                         ///< bytes per second of one rank, while all read; 0: not measured
  std::vector<RankFigures> ranks;

  std::size_t prompt_tokens() const;
  /// The tokens that each sequence's cache holds.
  std::vector<std::size_t> cached_tokens(std::size_t tokens) const;
};

/// Throws check_failed if this rank's booked bytes of weights or cache, or the bytes that it received, differ from
/// their formulas, or if the tokens with and without a cache differ.
void check_generation(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens);

/// Throws check_failed if the bytes that this rank received in an evaluation differ from their formula.
void check_evaluation(const worker::TextLoss& loss, const worker::Generator& generator);

/// Collects the figures of all ranks. `group`: null for one process. Throws check_failed if not all ranks chose the
/// same tokens.
void collect_ranks(GenerationReport& report, const worker::Generator& generator, ring::ProcessGroup* group);

/// Returns lines for a terminal, and the same figures as JSON text.
std::string generation_text(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens);
std::string generation_json(const GenerationReport& report, const worker::Generator& generator, std::size_t tokens,
                            const std::vector<std::string>& texts);

}  // namespace psring::cli
