#include <algorithm>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include <psring/bench/host_team.h>
#include <psring/bench/report.h>
#include <psring/common/base/text/error.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/role.h>
#include <psring/ring/collectives.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>

namespace psring::bench {
namespace {

constexpr std::chrono::seconds kFarewell{10};

net::DataLinks::Options patient(net::DataLinks::Options options) {
  options.silence = kSilence;
  return options;
}

/// The group that starts the calls and gathers the times, and the groups that are measured.
struct Groups {
  std::optional<ring::RingLinks> links;
  std::unique_ptr<ring::ProcessGroup> control;
  std::unique_ptr<RankLibrary> measured;
};

ring::Vector bytes_vector(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size(), {DType::u8}}; }

/// Returns the bytes of all ranks, which may be of several lengths.
std::vector<std::vector<std::byte>> gather_bytes(ring::ProcessGroup& group, std::span<const std::byte> own) {
  const auto size = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> gathered(group.size());
  ring::all_gather(group, std::span(&size, 1), std::span(gathered));
  const std::vector<std::size_t> sizes(gathered.begin(), gathered.end());
  std::size_t total = 0;
  for (const std::size_t each : sizes) total += each;
  std::vector<std::byte> all(total);
  ring::all_gather(group, ring::ConstVector(own.data(), own.size(), {DType::u8}), bytes_vector(all), sizes);
  std::vector<std::vector<std::byte>> parts;
  auto begin = all.begin();
  for (const std::size_t each : sizes) {
    const auto end = begin + static_cast<std::ptrdiff_t>(each);
    parts.emplace_back(begin, end);
    begin = end;
  }
  return parts;
}

}  // namespace

std::string describe_network(const std::string& where, const std::string& link, bool encrypt, std::size_t streams) {
  std::string text = link.empty() ? where : "link " + net::to_string(net::parse_link(link));
  if (encrypt) text += ", encrypted";
  return streams > 1 ? text + fmt::format(", {} sockets", streams) : text;
}

struct HostTeam::State {
  State(const RoleOptions& role, PsringRankOptions options) : member(role, net::Role::worker) {
    member.keep(groups);
    groups->links.emplace(member.key(), patient(member.link_options()), member.bytes());
    const auto workers = of_role(member.meet(groups->links->listen()), net::Role::worker);
    if (workers.size() < 2)
      fail(ErrorKind::usage, "--rdzv-endpoint {}: the job has one worker; two at least exchange anything",
           role.endpoint);
    groups->control = ring::make_job_group(member, *groups->links, workers, std::size_t{0}, false);
    options.max_bytes = std::max(options.max_bytes, 8 * workers.size());  // a vector has an element per rank at least
    groups->measured = connect_psring(
        {.key = member.key(),
         .links = patient(member.link_options()),
         .group = ring::group_options(member),
         .exchange = [this](std::span<const std::byte> bytes) { return gather_bytes(*groups->control, bytes); }},
        options);
  }

  Membership member;
  const std::shared_ptr<Groups> groups = std::make_shared<Groups>();  ///< shared with the member: its links close first
};

HostTeam::HostTeam(const RoleOptions& role, PsringRankOptions options)
    : state_(std::make_unique<State>(role, std::move(options))) {}

HostTeam::~HostTeam() = default;

std::size_t HostTeam::rank() const { return state_->groups->control->rank(); }
std::size_t HostTeam::ranks() const { return state_->groups->control->size(); }

std::string HostTeam::network() const {
  const JobOptions& job = state_->member.job();
  return describe_network("hosts", job.link, job.encrypt, job.streams);
}

std::vector<std::string> HostTeam::ways(const CollectiveCall& call) { return state_->groups->measured->ways(call); }

TimedTeam::Round HostTeam::measure(Task task) {
  ring::ProcessGroup& control = *state_->groups->control;
  task.call.rank = static_cast<std::uint32_t>(control.rank());
  const PreparedCall prepared = state_->groups->measured->prepare(task.call, task.way);
  std::vector<Sample> samples(task.iterations);
  auto wrong = static_cast<std::int64_t>(make_calls(
      task, prepared, [&] { control.barrier().wait(); }, samples));
  std::vector<double> slowest;
  for (const Sample& sample : samples) {
    slowest.push_back(1e-9 * static_cast<double>(sample.call));
    slowest.push_back(1e-9 * static_cast<double>(sample.loop));
  }
  control.all_reduce(std::span(slowest), ring::ReduceOp::Kind::max).wait();
  control.all_reduce(std::span(&wrong, 1), ring::ReduceOp::Kind::sum).wait();
  Samples calls;
  Samples loops;
  for (std::size_t i = 0; i < slowest.size(); i += 2) {
    calls.values.push_back(slowest[i]);
    loops.values.push_back(slowest[i + 1]);
  }
  return {calls.median(), loops.median(), static_cast<std::size_t>(wrong), prepared.detail};
}

void HostTeam::in_turn(const std::function<void()>& work) {
  for (std::size_t turn = 0; turn < ranks(); ++turn) {
    if (turn == rank()) work();
    state_->groups->control->barrier().wait();
  }
}

void HostTeam::finish() {
  state_->groups->control->barrier().wait();
  net::ControlLink& link = state_->member.link();
  link.report(state_->member.report_json(""));
  link.done();
  link.flush(state_->member.clock().now() + kFarewell);
}

}  // namespace psring::bench
