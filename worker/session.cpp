#include <chrono>
#include <utility>

#include <psring/worker/session.h>

namespace psring::worker {

Session::Session(const RoleOptions& options, std::vector<UnitSpec> units) : member_(options, net::Role::worker) {
  Layout layout = make_layout(std::move(units), member_.job().servers);
  arena_.emplace(lent_bytes(layout));
  for (const UnitLayout& unit : layout.units) {
    parameters_.emplace_back(unit.elements * sizeof(float), Category::parameters, member_.memory(), &*arena_);
    gradients_.emplace_back(unit.elements * sizeof(float), Category::gradients, member_.memory(), &*arena_);
  }
  member_.links().connect(member_.meet({}, net::Role::server), *arena_, member_.deadline());
  net::Transport& transport = member_.links().transport();
  member_.link().on_change([&transport] { transport.wake(); });
  client_.emplace(transport, member_.clock(), std::move(layout),
                  PsClient::Options{.mark = [this](const void* at) { return arena_->mark(at); },
                                    .check = [this] { member_.link().check(); }});
  client_->open(member_.job().seed);
}

void Session::finish() {
  member_.link().on_change({});
  member_.link().report(member_.report_json(""));
  member_.link().done();
  member_.link().flush(member_.clock().now() + std::chrono::seconds(10));
}

}  // namespace psring::worker
