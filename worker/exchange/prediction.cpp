#include <algorithm>

#include <psring/common/proc/job.h>
#include <psring/optim/codec/compression.h>
#include <psring/optim/state_memory.h>
#include <psring/worker/exchange/prediction.h>

namespace psring::worker {

void add_call(const ring::Cost& moved, Prediction& sum) {
  sum.worker_sends = sum.worker_sends.value_or(0) + moved.sent;
  sum.worker_receives = sum.worker_receives.value_or(0) + moved.received;
}

std::map<Category, std::uint64_t> memory_formula(const Plan& plan, Shares shares) {
  return memory_formula(plan, {plan.layout.elements(), plan.layout.trained_elements()}, shares);
}

std::map<Category, std::uint64_t> memory_formula(const Plan& plan, OwnedElements owned, Shares shares) {
  const Layout& layout = plan.layout;
  const bool master = layout.parameter_type != DType::f32 && plan.optimizer.master_copy;
  const optim::Optimizer& rule = *plan.optimizer.rule;
  const double slot = static_cast<double>(optim::slot_bytes(rule, kCut)) / kCut;  // a binary fraction: exact
  const double state = static_cast<double>(rule.slots()) * slot + (master ? sizeof(float) : 0);
  return memory_formula({.parameter_bytes = owned.all * size_bytes(layout.parameter_type),
                         .gradient_bytes = owned.trained * size_bytes(layout.gradient_type),
                         .trained = owned.trained,
                         .state_bytes = state},
                        shares);
}

namespace {

OwnedElements owned_by(const Layout& layout, std::size_t server) {
  OwnedElements owned{
      .all = layout.owned_elements(server), .trained = layout.owned_trained_elements(server), .server = server};
  for (const UnitId unit : layout.trained())
    owned.largest_piece =
        std::max<std::uint64_t>(owned.largest_piece, std::min(layout.piece_elements, layout.owned(unit, server)));
  return owned;
}

/// Copies of the values that each worker was sent last, of workers whose memory the server has no access to. Nothing if
/// that depends on the hosts of the processes, or on which answers a host's workers take from memory.
std::optional<std::uint64_t> answer_copies(const Plan& plan, const OwnedElements& owned) {
  const JobOptions& job = plan.job;
  if (plan.consistency.exact() || job.optimizer_on != "server" || plan.remedy.keeps_answers()) return 0;
  const bool none_shares = job.transport == "tcp" || !job.link.empty();
  if (!none_shares && (!plan.place.one_host || plan.layout.gradient_type != plan.layout.parameter_type))
    return std::nullopt;
  const std::size_t own = owned.server >= job.standalone_servers() ? 1 : 0;  // of the same process
  const std::uint64_t far = none_shares ? plan.workers - own : 0;
  return far * owned.trained * size_bytes(plan.layout.parameter_type);
}

/// Returns the bytes that a server books as communication: pushes that are decoded together, the scratch memory of a
/// GPU that updates pieces, and answer_copies.
std::optional<std::uint64_t> server_communication(const Plan& plan, const OwnedElements& owned, bool keeps_mean) {
  std::optional<std::uint64_t> bytes = answer_copies(plan, owned);
  if (!bytes) return std::nullopt;
  const Layout& layout = plan.layout;
  const std::size_t all_push = plan.place.pushers.empty() ? plan.workers : plan.place.pushers.size();
  if (optim::make_codec(plan.job.compress, plan.job.error_feedback) != nullptr)
    *bytes += (plan.consistency.each_push_updates ? 1 : all_push) * owned.largest_piece * sizeof(float);
  if (plan.job.server_device != "cuda") return bytes;
  const bool apart = layout.parameter_type != DType::f32 && plan.optimizer.master_copy;
  const std::size_t gradients = (keeps_mean ? 1 : 2) * size_bytes(layout.gradient_type);
  *bytes += owned.largest_piece * (gradients + sizeof(float) + (apart ? size_bytes(layout.parameter_type) : 0));
  return bytes;
}

}  // namespace

void set_server_memory(const Plan& plan, const std::function<std::map<Category, std::uint64_t>(OwnedElements)>& booked,
                       Prediction& sum) {
  const Layout& layout = plan.layout;
  const auto memory_of = [&](const OwnedElements& owned) {
    auto memory = booked(owned);
    const bool keeps_mean = memory[Category::gradients] > 0;
    if (const auto bytes = server_communication(plan, owned, keeps_mean)) memory[Category::communication] += *bytes;
    return memory;
  };
  sum.each_server_memory.clear();
  OwnedElements most;
  const std::size_t different = layout.weights.even() ? 1 : layout.owners;
  for (std::size_t server = 0; server < different; ++server) {
    const OwnedElements owned = owned_by(layout, server);
    if (different > 1) sum.each_server_memory.push_back(memory_of(owned));
    if (owned.all >= most.all) most = owned;
  }
  sum.server_memory = memory_of(most);
}

std::map<Category, std::uint64_t> memory_formula(const ModelStates& states, Shares shares) {
  const auto share = [](std::uint64_t bytes, std::size_t processes) { return processes == 0 ? 0 : bytes / processes; };
  const auto state = static_cast<std::uint64_t>(static_cast<double>(states.trained) * states.state_bytes);
  return {{Category::parameters, share(states.parameter_bytes, shares.parameters)},
          {Category::gradients, share(states.gradient_bytes, shares.gradients)},
          {Category::optimizer, share(state, shares.optimizer)}};
}

void add_optimizer_state(const Plan& plan, std::size_t owners, Prediction& sum) {
  sum.worker_memory[Category::optimizer] +=
      memory_formula(plan, {.parameters = 0, .gradients = 0, .optimizer = owners})[Category::optimizer];
}

}  // namespace psring::worker
