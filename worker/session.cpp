#include <optional>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>
#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/worker/programs/end_of_program.h>
#include <psring/worker/servers/ps_client.h>
#include <psring/worker/session.h>

namespace psring::worker {
namespace {

std::vector<UnitSpec> one_vector(std::size_t elements) {
  TensorLayout tensor;
  tensor.spec = {"vector", {elements}, {}};
  return {{"vector", {std::move(tensor)}}};
}

/// The memory that servers' answers are stored into and pushes leave from.
struct VectorMemory {
  std::optional<Arena> arena;
  std::vector<Buffer> parameters;
  std::vector<Buffer> gradients;
  std::optional<PsClient> client;
};

}  // namespace

struct Session::State {
  State(const RoleOptions& options, std::vector<UnitSpec> units) : member(options, net::Role::worker) {
    guarded([&] { open(std::move(units)); });
  }

  /// The job learns why this worker leaves it. A wrong argument is no reason to leave.
  template <class Body>
  void guarded(Body body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::usage) throw;
      throw member.fail(error);
    }
  }

  void open(std::vector<UnitSpec> units) {
    Layout layout = make_layout(std::move(units), member.job().servers);
    member.keep(memory);
    std::optional<Arena>& arena = memory->arena;
    arena.emplace(lent_bytes(layout));
    for (const UnitLayout& unit : layout.units) {
      memory->parameters.emplace_back(unit.elements * sizeof(float), Category::parameters, member.memory(), &*arena);
      memory->gradients.emplace_back(unit.elements * sizeof(float), Category::gradients, member.memory(), &*arena);
    }
    member.links().connect(of_role(member.meet({}), net::Role::server), *arena, member.deadline());
    net::Transport& transport = member.links().transport();
    member.link().on_change([&transport] { transport.wake(); });
    PsClient::Options client_options;
    client_options.mark = [&arena](const void* at) { return arena->mark(at); };
    client_options.first_owner = member.rank();
    client_options.copied_pushes = true;
    client_options.check = [this] { member.link().check(); };
    if (member.job().op_timeout > 0) client_options.op_timeout = from_seconds(member.job().op_timeout);
    memory->client.emplace(transport, member.clock(), std::move(layout), std::move(client_options));
    memory->client->open(member.job().seed);
  }

  Membership member;
  /// Shared with the member: its links close first.
  const std::shared_ptr<VectorMemory> memory = std::make_shared<VectorMemory>();
};

Session::Session(const RoleOptions& options, std::vector<UnitSpec> units)
    : state_(std::make_unique<State>(options, std::move(units))) {}

Session::Session(const RoleOptions& options, std::size_t elements) : Session(options, one_vector(elements)) {}

Session::~Session() = default;

std::size_t Session::rank() const { return state_->member.rank(); }

std::size_t Session::workers() const { return state_->member.job().workers; }

std::span<float> Session::parameters(std::size_t unit) const { return state_->memory->parameters.at(unit).as<float>(); }

std::span<float> Session::gradients(std::size_t unit) const { return state_->memory->gradients.at(unit).as<float>(); }

void Session::push(std::uint64_t step, std::size_t unit) {
  state_->guarded([&] {
    client().push(unit, step, gradients(unit));
    client().wait_acknowledged(unit);
  });
}

void Session::pull(std::uint64_t version, std::size_t unit) {
  state_->guarded([&] {
    client().pull(unit, version, parameters(unit));
    client().wait(unit, version);
  });
}

void Session::push_pull(std::uint64_t step, std::size_t unit) {
  state_->guarded([&] {
    client().push_pull(unit, step, gradients(unit), parameters(unit));
    client().wait(unit, step + 1);
  });
}

PsClient& Session::client() { return *state_->memory->client; }

void Session::finish() { end_of_program(state_->member); }

}  // namespace psring::worker
