#include <deque>
#include <optional>

#include <psring/common/device/buffer.h>
#include <psring/common/proc/role.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>
#include <psring/ring/shm/world.h>

namespace psring::ring {
namespace {

constexpr std::size_t kSessionBytes = std::size_t{1} << 30;  // sparse

struct SessionMemory {
  std::optional<RingLinks> links;
  std::unique_ptr<ProcessGroup> group;
  std::deque<Buffer> vectors;
};

}  // namespace

GroupOptions group_options(Membership& member) {
  GroupOptions options;
  options.check = [&member] { member.link().check(); };
  if (member.job().op_timeout > 0) options.op_timeout = from_seconds(member.job().op_timeout);
  options.ledger = &member.bytes();
  return options;
}

std::unique_ptr<ProcessGroup> make_host_group(Membership& member, RingLinks& links,
                                              const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena) {
  return links.connect_host(workers, std::move(arena), group_options(member), member.deadline());
}

std::unique_ptr<ProcessGroup> make_job_group(Membership& member, RingLinks& links,
                                             const std::vector<net::Member>& workers, std::size_t arena_bytes,
                                             bool background, Events* events) {
  return make_job_group(member, links, workers, std::make_shared<Arena>(arena_bytes + kShmArenaBytes), background,
                        events);
}

std::unique_ptr<ProcessGroup> make_job_group(Membership& member, RingLinks& links,
                                             const std::vector<net::Member>& workers, std::shared_ptr<Arena> arena,
                                             bool background, Events* events) {
  const JobOptions& job = member.job();
  LinkOptions options;
  options.group = group_options(member);
  options.background = background;
  options.events = events != nullptr && events->detailed() ? events : nullptr;
  options.tuning = job.tuning.empty() ? Tuning::built_in() : Tuning::from_json(job.tuning);
  if (job.algorithm != "auto" && job.algorithm != "direct")
    options.algorithm = parse_algorithm("--algorithm", job.algorithm);
  return links.connect(workers, std::move(arena), std::move(options), member.deadline());
}

struct Session::State {
  explicit State(const RoleOptions& options) : member(options, net::Role::worker) {
    member.keep(memory);
    memory->links.emplace(member.key(), member.link_options(), member.bytes());
    const auto workers = of_role(member.meet(memory->links->listen()), net::Role::worker);
    memory->group = make_job_group(member, *memory->links, workers, kSessionBytes, false);
  }

  Membership member;
  /// Shared with the member: its links close first.
  const std::shared_ptr<SessionMemory> memory = std::make_shared<SessionMemory>();
};

Session::Session(const RoleOptions& options) : state_(std::make_unique<State>(options)) {}

Session::~Session() = default;

ProcessGroup& Session::group() const { return *state_->memory->group; }

std::span<float> Session::allocate(std::size_t elements) {
  state_->memory->vectors.emplace_back(elements * sizeof(float), Category::gradients, state_->member.memory(),
                                       group().arena());
  return state_->memory->vectors.back().as<float>();
}

void Session::finish() {
  group().last_barrier().wait();
  group().account();
  net::ControlLink& link = state_->member.link();
  link.report(state_->member.report_json(""));
  link.done();
  link.await_finish();
}

}  // namespace psring::ring
