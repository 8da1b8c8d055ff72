#include <cmath>
#include <cstring>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/optim/updater.h>
#include <psring/server/step_verdict.h>

namespace psring::server {
namespace {

// The state's bytes: loss scale, round:u64, total.
constexpr std::size_t kRoundAt = optim::LossScaler::kBytes;
constexpr std::size_t kTotalAt = kRoundAt + sizeof(std::uint64_t);

}  // namespace

StepVerdict::Decision StepVerdict::on_square_sum(const optim::ExactSum& mine, std::vector<net::Outgoing>& replies) {
  norm_due_ = true;
  auto total = verdict_.contribute({mine}, replies);
  return total ? on_total(std::move(*total)) : Decision{};
}

StepVerdict::Decision StepVerdict::on_layer_sums(const Verdict::Sums& mine, std::vector<net::Outgoing>& replies) {
  auto total = verdict_.contribute(mine, replies);
  return total ? on_total(std::move(*total)) : Decision{};
}

StepVerdict::Decision StepVerdict::on_message(const net::Message& message, std::vector<net::Outgoing>& replies) {
  auto total = verdict_.on_message(message, replies);
  return total ? on_total(std::move(*total)) : Decision{};
}

StepVerdict::Decision StepVerdict::on_total(Verdict::Sums total) {
  if (!norm_due_) return {Action::scale_layers, std::move(total)};
  norm_due_ = false;
  const optim::ExactSum& square_sum = total.at(0);
  const float loss_scale = scaler_.scale();
  skipped_ = scaler_.active() && !std::isfinite(square_sum.value());
  if (scaler_.active()) scaler_.finished(!skipped_);
  if (skipped_) return {Action::skip, {}};
  gradient_scale_ =
      options_.clip_norm > 0 ? optim::clip_scale(square_sum, options_.clip_norm, loss_scale) : 1 / loss_scale;
  return {Action::apply, {}};
}

void StepVerdict::begin_epoch() {
  norm_due_ = false;
  verdict_.begin_epoch();
}

std::vector<std::byte> StepVerdict::store() const {
  std::vector<std::byte> state(kTotalAt);
  const auto scale = scaler_.store();
  const std::uint64_t round = verdict_.round();
  const auto total = verdict_.last_total();
  std::memcpy(state.data(), scale.data(), scale.size());
  std::memcpy(state.data() + kRoundAt, &round, sizeof round);
  state.insert(state.end(), total.begin(), total.end());
  return state;
}

void StepVerdict::restore(std::span<const std::byte> state, bool skipped) {
  if (state.size() < kTotalAt) fail(ErrorKind::protocol, "the end of a state with {} bytes", state.size());
  std::uint64_t round = 0;
  std::memcpy(&round, state.data() + kRoundAt, sizeof round);
  verdict_.restore(round, state.subspan(kTotalAt));
  scaler_.load(state.first<optim::LossScaler::kBytes>());
  skipped_ = skipped;
}

}  // namespace psring::server
