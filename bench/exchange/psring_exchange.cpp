#include <chrono>
#include <optional>
#include <utility>

#include <unistd.h>

#include <psring/bench/exchange/exchange.h>
#include <psring/bench/exchange/psring_link.h>
#include <psring/common/base/parallel.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/device/buffer.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/optim/rows/row_rule.h>
#include <psring/optim/rules.h>
#include <psring/optim/schedule.h>
#include <psring/server/server.h>
#include <psring/worker/servers/ps_client.h>

namespace psring::bench {
namespace {

const net::Identity kServer{{net::Role::server, 0}, 0};
const net::Identity kWorker{{net::Role::worker, 0}, 0};
constexpr std::chrono::seconds kPatience{60};

net::DataLinks::Options links_of(Kind kind, const net::Identity& self) {
  return {.self = self,
          .way = kind == Kind::shm ? net::Way::shm : net::Way::tcp,
          .encrypt = kind == Kind::tcp_encrypted,
          .host_id = net::host_id()};
}

Layout layout_of(const std::vector<std::size_t>& elements) {
  std::vector<UnitSpec> units;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::string name = fmt::format("vector {}", i);
    const TensorSpec tensor{name, {elements[i]}, {Init::Kind::constant, kStart}};
    units.push_back({name, {{tensor, static_cast<std::uint32_t>(i), 0}}});
  }
  return make_layout(std::move(units), 1);
}

class PsringExchange final : public Exchange {
 public:
  PsringExchange(Kind kind, const std::string& endpoint, const std::string& key_file,
                 const std::vector<std::size_t>& elements)
      : PsringExchange(kind, endpoint, key_file, elements, layout_of(elements)) {}

  std::span<float> gradient(std::size_t unit) override {
    return units_[unit].gradient.as<float>().first(units_[unit].elements);
  }
  std::span<const float> parameters(std::size_t unit) override {
    return units_[unit].parameters.as<float>().first(units_[unit].elements);
  }
  void push_then_pull(std::size_t unit) override {
    Unit& u = units_[unit];
    client_->push(unit, u.step, u.gradient.as<float>());
    client_->wait_acknowledged(unit);
    client_->pull(unit, ++u.step, u.parameters.as<float>());
    client_->wait(unit, u.step);
  }
  void push_pull(std::size_t unit) override {
    Unit& u = units_[unit];
    client_->push_pull(unit, u.step++, u.gradient.as<float>(), u.parameters.as<float>());
    client_->wait(unit, u.step);
  }

 private:
  struct Unit {
    std::size_t elements;
    Buffer gradient;
    Buffer parameters;
    std::uint64_t step = 0;
  };

  PsringExchange(Kind kind, const std::string& endpoint, const std::string& key_file,
                 const std::vector<std::size_t>& elements, Layout layout)
      : link_(kind, endpoint, key_file, worker::lent_bytes(layout)) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const std::size_t bytes = layout.units[i].elements * sizeof(float);
      units_.push_back({elements[i], Buffer(bytes, Category::gradients, memory_, &link_.arena()),
                        Buffer(bytes, Category::parameters, memory_, &link_.arena())});
    }
    worker::PsClient::Options options{
        .mark = [this](const void* at) { return link_.arena().mark(at); }, .check = {}, .op_timeout = kPatience};
    client_.emplace(link_.transport(), clock_, std::move(layout), std::move(options));
    client_->open(0);
  }

  const SystemClock clock_;
  MemoryLedger memory_;
  PsringLink link_;
  std::vector<Unit> units_;
  std::optional<worker::PsClient> client_;
};

}  // namespace

PsringLink::PsringLink(Kind kind, const std::string& endpoint, const std::string& key_file, std::size_t arena_bytes)
    : arena_(arena_bytes), links_(net::JobKey::load(key_file), links_of(kind, kWorker), ledger_) {
  const std::size_t space = endpoint.find(' ');
  const std::size_t pid = endpoint.rfind(' ');
  const net::Member server{
      .peer = kServer.peer,
      .host_id = net::host_id(),
      .addresses = {{"tcp", endpoint.substr(0, space)}, {"shm", endpoint.substr(space + 1, pid - space - 1)}}};
  links_.connect({server}, arena_, SystemClock().now() + kPatience);
}

void serve_psring(const ServerPlan& plan) {
  const SystemClock clock;
  ByteLedger bytes;
  MemoryLedger memory;
  net::DataLinks links(net::JobKey::load(plan.key_file), links_of(plan.kind, kServer), bytes);
  const net::Addresses addresses = links.listen();
  net::Transport& transport = links.transport();
  publish_endpoint(plan.endpoint_fd, fmt::format("{} {} {}", addresses.at("tcp"), addresses.at("shm"), ::getpid()));

  const auto optimizer = optim::make_sgd({});
  const optim::TableRules row_rules({.rule = optim::make_row_rule(Spec::parse("--table-optimizer", "rowwise-adagrad")),
                                     .lr = plan.lr,
                                     .codec = nullptr});
  const auto schedule = optim::make_schedule(Spec::parse("--schedule", "constant"), 1);
  const auto aggregator = server::make_mean(Spec::parse("--aggregate", "mean"));
  Parallel parallel(plan.threads);
  server::Shard shard({.lr = plan.lr,
                       .optimizer = optimizer.get(),
                       .schedule = schedule.get(),
                       .aggregator = aggregator.get(),
                       .row_rules = &row_rules},
                      parallel, memory);
  server::serve(shard, transport, clock, [] { return false; });
}

std::unique_ptr<Exchange> connect_psring(Kind kind, const std::string& endpoint, const std::string& key_file,
                                         const std::vector<std::size_t>& elements) {
  return std::make_unique<PsringExchange>(kind, endpoint, key_file, elements);
}

}  // namespace psring::bench
