#include <algorithm>

#include <psring/common/proc/mesh_servers.h>
#include <psring/optim/codec/compression.h>
#include <psring/worker/exchange/memory_formula.h>
#include <psring/worker/exchange/servers/servers.h>
#include <psring/worker/servers/server_bytes.h>
#include <psring/worker/state/compressor.h>

namespace psring::worker {
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
  const bool none_shares = only_sockets(job);
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

Servers::Way Servers::pushed_way() const {
  const Layout& layout = plan_.layout;
  Way way{.by_server = std::vector<std::uint64_t>(layout.owners, 0)};
  const optim::Codec* const codec = world_.compressor == nullptr ? nullptr : &world_.compressor->codec();
  for (std::size_t server = 0; server < layout.owners; ++server)
    for (std::size_t unit = 0; unit < layout.units.size(); ++unit)
      way.by_server[server] += pushed_bytes(layout, unit, server, codec);
  for (std::uint64_t& bytes : way.by_server) {
    bytes *= layout.pushes;
    way.all += bytes;
  }
  return way;
}

Servers::Way Servers::pulled_way(std::span<const UnitId> units, DType type) const {
  Way way{.by_server = std::vector<std::uint64_t>(plan_.layout.owners, 0)};
  for (std::size_t server = 0; server < plan_.layout.owners; ++server) {
    for (const UnitId unit : units) way.by_server[server] += pulled_bytes(plan_.layout, unit, server, type);
    way.all += way.by_server[server];
  }
  return way;
}

std::uint64_t Servers::over_the_wire(const Way& way, std::size_t worker) const {
  const std::optional<std::size_t> own = server_beside(plan_.job, DataRank{worker});
  return own ? way.all - way.by_server[*own] : way.all;
}

void Servers::predict_pushes(Prediction& sum) const {
  const Way pushed = pushed_way();
  sum.worker_sends = sum.server_receives = 0;
  const auto push = [&](std::size_t worker) {
    if (worker == plan_.data_rank.value) *sum.worker_sends += over_the_wire(pushed, worker);
    *sum.server_receives += over_the_wire(pushed, worker);
  };
  if (plan_.place.pushers.empty())
    for (std::size_t worker = 0; worker < plan_.workers; ++worker) push(worker);
  for (const std::size_t worker : plan_.place.pushers) push(worker);
  const std::size_t all_push = plan_.place.pushers.empty() ? plan_.workers : plan_.place.pushers.size();
  if (plan_.place.replicas > 0) sum.server_replicates = plan_.place.replicas * all_push * pushed.all;
  if (const auto own = server_beside(plan_.job, plan_.data_rank))
    sum.own_server_receives = (all_push - (host_sum_.this_worker_pushes() ? 1 : 0)) * pushed.by_server[*own];
}

void Servers::predict_pulls(std::span<const UnitId> units, DType type, Prediction& sum) const {
  const Way pulled = pulled_way(units, type);
  sum.worker_receives = over_the_wire(pulled, plan_.data_rank.value);
  sum.server_sends = 0;
  for (std::size_t worker = 0; worker < plan_.workers; ++worker) *sum.server_sends += over_the_wire(pulled, worker);
  if (const auto own = server_beside(plan_.job, plan_.data_rank))
    sum.own_server_sends = (plan_.workers - 1) * pulled.by_server[*own];
  host_sum_.predict(sum);
}

}  // namespace psring::worker
