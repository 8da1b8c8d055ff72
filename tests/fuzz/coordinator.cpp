// A job's coordinator: whatever connections say, in whatever order, and however time goes on, it throws nothing, and
// answers those alone who are there.
#include <algorithm>
#include <string>

#include <psring/common/proc/coordinator/coordinator.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;
using namespace psring::net;

namespace {

ControlMessage read_message(fuzz::Input& in) {
  switch (in.below(12)) {
    case 0: {
      control::Hello hello;
      hello.role = static_cast<Role>(in.below(4));
      if (in.below(2) == 0) hello.rank = static_cast<std::uint32_t>(in.odd_number());
      hello.pid = in.byte();
      if (in.below(4) == 0) {
        hello.epoch = in.byte();
        hello.duty = {static_cast<Role>(in.below(4)), static_cast<std::uint32_t>(in.below(8))};
        hello.running = in.below(2) == 0;
      }
      return hello;
    }
    case 1:
      return control::Ready{
          {{"tcp", "somewhere"}}, static_cast<std::uint32_t>(in.below(4)), in.byte(), in.below(2) == 0};
    case 2:
      return control::Heartbeat{Nanoseconds(in.number<std::int64_t>()), in.odd_number()};
    case 3:
      return control::RoleExited{{static_cast<Role>(in.below(4)), static_cast<std::uint32_t>(in.odd_number())},
                                 in.number<std::int32_t>(),
                                 in.byte(),
                                 "last",
                                 in.byte(),
                                 in.below(4) == 0};
    case 4:
      return control::Report{"{}"};
    case 5:
      return control::Done{};
    case 6:
      return control::Bye{};
    case 7:
      return control::Failed{static_cast<ErrorKind>(in.below(8)), "why"};
    case 8:
      return control::Stuck{static_cast<std::uint32_t>(in.below(4)), "why"};
    case 9:
      return control::Resumed{static_cast<std::uint32_t>(in.below(4)), in.byte()};
    case 10:
      return control::Status{"{}"};
    default:
      return decode_control(in.take(in.byte()));
  }
}

}  // namespace

void psring::fuzz::run(Input in) {
  JobPlan plan;
  plan.workers = static_cast<std::uint32_t>(1 + in.below(3));
  plan.servers = static_cast<std::uint32_t>(in.below(3));
  plan.agents = static_cast<std::uint32_t>(in.below(3));
  plan.reserve_agent_0 = in.below(2) == 0;
  plan.replicas = plan.servers % 2 == 0 && in.below(2) == 0;
  plan.colocated = in.below(4) == 0 && !plan.replicas ? std::min(plan.workers, plan.servers) : 0;
  plan.recovery.max_restarts = static_cast<std::uint32_t>(in.below(5));
  plan.recovery.min_workers = static_cast<std::uint32_t>(in.below(3));
  plan.recovery.keepers = static_cast<RecoveryPlan::Keepers>(in.below(3));
  plan.recovery.begin_anew = [](std::uint32_t) { return RecoveryPlan::Anew{"{}", 7}; };
  plan.recovery.is_second = in.below(4) == 0;
  Moment now = Moment{} + std::chrono::hours(1);
  Coordinator coordinator(plan, now);
  const auto look = [&](const Coordinator::Actions& actions) {
    require(actions.messages.size() <= 200, "as many messages as there are members, and a few");
    for (const auto& outgoing : actions.messages) encode_control(outgoing.message);
    for (const auto& event : actions.events)
      if (const auto* append = std::get_if<control::Append>(&event.what))
        require(is_safe_file_name(append->file), "a file of the run folder");
  };
  for (int i = 0; i < 300 && !in.empty(); ++i) {
    const std::string from(1, static_cast<char>('a' + in.below(8)));
    if (in.below(8) == 0) {
      now += std::chrono::milliseconds(in.number<std::uint16_t>());
      look(coordinator.tick(now));
      continue;
    }
    std::optional<ControlMessage> message;
    const bool taken = refuses(ErrorKind::protocol, [&] { message = read_message(in); });
    look(taken ? coordinator.receive(from, std::move(*message), now)
               : coordinator.receive_garbage(from, Error(ErrorKind::protocol, "garbage"), now));
    require(coordinator.next_tick() >= now - std::chrono::hours(1), "a next tick");
  }
}
