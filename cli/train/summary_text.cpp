#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <psring/cli/train/summary_text.h>
#include <psring/common/base/median.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

std::string result_text(const Summary& summary) {
  std::string text = fmt::format("{}: {} steps", summary.strategy, summary.steps);
  if (std::isfinite(summary.final_loss)) text += fmt::format(", loss {:.4f}", summary.final_loss);
  if (summary.reads_text()) {
    if (summary.test_loss) text += fmt::format(", test perplexity {:.2f}", *summary.test_perplexity());
  } else if (summary.test_accuracy) {
    text += fmt::format(", test accuracy {:.4f}", *summary.test_accuracy);
  } else if (summary.test_loss) {
    text += fmt::format(", test loss {:.4f}", *summary.test_loss);
  }
  for (const auto& [name, mean] : summary.test_own) text += fmt::format(", test {} {:.4f}", name, mean);
  const std::string rate = summary.reads_text() ? fmt::format("{:.0f} tokens/s", summary.tokens_per_second)
                                                : fmt::format("{:.0f} samples/s", summary.samples_per_second);
  return text + fmt::format("; {}, {:.2f} ms in the median step, {:.2f} ms of it waiting\n", rate,
                            summary.step_seconds * 1e3, summary.exposed_seconds * 1e3);
}

std::string staleness_text(const Summary& summary) {
  std::string text;
  for (std::size_t worker = 0; worker < summary.staleness.size(); ++worker) {
    const StalenessSummary& own = summary.staleness[worker];
    text += fmt::format("  worker {}: staleness {:.2f}, at most {}; lag at most {}", worker, own.mean(), own.most,
                        own.most_lag);
    text += own.dropped > 0 ? fmt::format("; {} pushes of pieces came too late\n", own.dropped) : "\n";
  }
  return text;
}

/// One line for each process and direction in which bytes moved, or should have moved.
std::string bytes_text(const Summary& summary) {
  const auto steps = static_cast<double>(summary.steps);
  std::string text;
  for (const ByteCheck& check : summary.bytes) {
    if (check.measured == 0 && check.predicted.value_or(0) == 0) continue;
    text += fmt::format("  {} {} {:.0f} bytes a step", check.role, check.direction,
                        static_cast<double>(check.measured) / steps);
    if (check.predicted)
      text += check.ok() ? ", as predicted"
                         : fmt::format(", predicted {:.0f}", static_cast<double>(*check.predicted) / steps);
    text += "\n";
  }
  return text;
}

std::string pipeline_text(const PipelineSummary& pipeline) {
  return fmt::format(
      "  {} stages ({}): idle {:.1f} % of a step; the bubble of {} is {:.1f} % if stages take equally long; "
      "activations of "
      "at most {} at once\n",
      pipeline.stages, pipeline.schedule, 100 * pipeline.bubble, count_of(pipeline.micros, "micro-batch"),
      100 * pipeline.predicted, count_of(pipeline.most_in_flight, "micro-batch"));
}

}  // namespace

std::string losses_line(const Summary& summary) {
  std::string text = "went on after " + count_of(summary.losses, "loss");
  if (const std::vector<double>& times = summary.recovery_seconds; !times.empty())
    text += fmt::format(", within {:.2f} s (median; worst {:.2f} s)", median(times), std::ranges::max(times));
  if (summary.workers < summary.begun_with)
    text += fmt::format(", with {} of {} workers at the end", summary.workers, summary.begun_with);
  return text + "; bytes are not compared, as steps were repeated";
}

std::string skipped_line(const Summary& summary) {
  return fmt::format("{} skipped, as gradients were not finite (--loss-scale)",
                     count_of(summary.skipped_steps, "step"));
}

std::string describe(const Summary& summary, const std::filesystem::path& folder) {
  std::string text = result_text(summary);
  if (summary.skipped_steps > 0) text += "  " + skipped_line(summary) + "\n";
  if (summary.losses > 0) text += "  " + losses_line(summary) + "\n";
  if (summary.pipeline) text += pipeline_text(*summary.pipeline);
  text += staleness_text(summary) + bytes_text(summary);
  for (const MemoryCheck& check : summary.memory)
    if (!check.ok())
      text += fmt::format("  {} booked {} bytes for {}, predicted {}\n", check.role, check.peak, check.category,
                          *check.predicted);
  return text + fmt::format("run folder: {}\n", folder.string());
}

}  // namespace psring::cli
