#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>

#include <sys/resource.h>
#include <unistd.h>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/device/processor.h>
#include <psring/common/net/address.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/logs/memory_log.h>
#include <psring/common/proc/role.h>
#include <psring/common/proc/signal_relay.h>

namespace psring {
namespace {

std::function<void(const std::string&)> tell_of_wait(net::Role role) {
  return [role](const std::string& reason) {
    out::print("{}: {}\n", to_string(role), reason);
    std::fflush(stdout);
  };
}

}  // namespace

Membership::Membership(const RoleOptions& options, net::Role role, int stop_fd, bool asks)
    : role_(role),
      guest_(options.host != nullptr),
      processor_(role == net::Role::worker ? describe_processor() : ""),
      key_(net::JobKey::load(options.key_file)) {
  const std::string host = net::host_id();
  // Checked before the role joins, so that a mistake here does not fail the job.
  const net::Endpoint endpoint = net::resolve_endpoint("--rdzv-endpoint", options.endpoint);
  const std::string bind = options.bind.empty() ? net::address_towards(endpoint.host) : net::bind_address(options.bind);
  link_ =
      std::make_unique<net::ControlLink>(net::ControlLink::Options{.endpoint = options.endpoint,
                                                                   .role = role,
                                                                   .rank = options.rank,
                                                                   .host_id = host,
                                                                   .processor = processor_,
                                                                   .join_timeout = from_seconds(options.join_timeout),
                                                                   .patient = options.patient,
                                                                   .on_wait = tell_of_wait(role),
                                                                   .stop_fd = stop_fd,
                                                                   .asks = asks,
                                                                   .bytes = &bytes_},
                                         key_, clock_);
  try {
    prepare(host, bind, options.host);
  } catch (const Error& error) {
    link_->fail(error);
    throw;
  }
}

/// The link must not wake a transport that is being destroyed.
Membership::~Membership() { link_->on_change({}); }

void Membership::prepare(const std::string& host, const std::string& bind, std::shared_ptr<net::LocalLink> local) {
  job_ = job_from_json(link_->job());
  std::optional<net::LinkSpec> link;
  if (!job_.link.empty()) link = net::parse_link(job_.link);
  for (const Fault& fault : faults_of(job_.fault, self()))
    if (fault.kind == Fault::Kind::link && link) link->bits_per_second = fault.bits_per_second;
  if (epoch() > 0) job_.fault = without_ends(job_.fault);
  FaultTrigger(job_.fault, self()).arm();
  refusals_.emplace(to_string(self()), clock_, [](const std::string& line) { out::print("{}\n", line); });
  link_options_ = {.self = {self(), 0},
                   .way = net::parse_way(job_.transport),
                   .encrypt = job_.encrypt,
                   .bind = bind,
                   .host_id = host,
                   .silence = from_seconds(job_.heartbeat_timeout),
                   .streams = job_.streams,
                   .link = link,
                   .frame_faults = frame_faults(job_.fault, job_.seed, self()),
                   .card = local ? local->card() : nullptr,
                   .refusals = &*refusals_};
  link_options_ = net::with_card(std::move(link_options_));
  make_links();
  if (local) links_->share_process(std::move(local));
}

void Membership::make_links() {
  link_options_.self = {self(), epoch()};
  links_ = std::make_unique<net::DataLinks>(key_, link_options_, bytes_);
}

std::vector<net::Member> Membership::meet(const net::Addresses& addresses, std::uint64_t step, bool has_state,
                                          const net::Addresses& files) {
  link_->ready(addresses, step, has_state, files);
  std::vector<net::Member> members = link_->members(clock_.now() + 2 * from_seconds(job_.join_timeout));
  link_options_.self = {self(), epoch()};
  links_->become(link_options_.self);
  job_.workers = of_role(members, net::Role::worker).size();
  return members;
}

void Membership::regroup(const Error& error) {
  link_->on_change({});
  links_.reset();
  kept_.clear();
  link_->stuck(error);
  link_->await_epoch(deadline().moment());
  make_links();
}

Error Membership::fail(const Error& error) {
  link_->fail(error);
  try {
    link_->flush(clock_.now() + std::chrono::seconds(1));
  } catch (const Error&) {  // the coordinator has gone, or is slow: the role's own error says more
  }
  if (error.kind() != ErrorKind::peer_lost) return error;
  const auto cause = link_->await_failure(clock_.now() + link_->heartbeat_timeout() + std::chrono::seconds(1));
  const std::string_view own = error.what();
  if (!cause || own.find(cause->what()) != own.npos) return error;
  if (std::string_view(cause->what()).find(own) != own.npos) return *cause;
  return Error(cause->kind(), fmt::format("{} (seen here: {})", cause->what(), own));
}

std::vector<net::Member> of_role(std::vector<net::Member> members, net::Role role) {
  std::erase_if(members, [&](const net::Member& member) { return member.peer.role != role; });
  return members;
}

std::vector<std::size_t> first_of_each_host(const std::vector<net::Member>& workers) {
  std::vector<std::size_t> ranks;
  std::set<std::string> hosts;
  for (const net::Member& worker : workers)
    if (hosts.insert(worker.host_id).second) ranks.push_back(worker.peer.rank);
  return ranks;
}

std::vector<std::size_t> shard_groups(const JobOptions& job, const std::vector<net::Member>& workers) {
  if (job.shard_group.empty()) return {};
  std::vector<std::size_t> groups;
  if (const std::optional<std::size_t> owners = job.shard_owners()) {
    for (std::size_t rank = 0; rank < workers.size(); ++rank) groups.push_back(rank / *owners);
    return groups;
  }
  std::map<std::string, std::size_t> hosts;  // their numbers, by host id
  std::vector<const net::Member*> firsts;
  std::vector<std::size_t> counts;
  for (const net::Member& worker : workers) {
    const auto [host, added] = hosts.try_emplace(worker.host_id, hosts.size());
    if (added) {
      firsts.push_back(&worker);
      counts.push_back(0);
    }
    ++counts[host->second];
    groups.push_back(host->second);
  }
  for (std::size_t host = 1; host < counts.size(); ++host)
    if (counts[host] != counts[0])
      fail(ErrorKind::usage,
           "--shard-group host: expected equally many workers on each host; the host of {} has {}, the host of {} has "
           "{}",
           to_string(*firsts[0]), counts[0], to_string(*firsts[host]), counts[host]);
  return groups;
}

void Membership::append(const std::string& file, std::string_view text) {
  // Each piece ends with a line, because this process may be lost between two pieces.
  for (std::string_view left = text; !left.empty();) {
    const std::size_t most = std::min(left.size(), net::kMaxAppendBytes);
    const std::size_t line_end = most < left.size() ? left.substr(0, most).rfind('\n') : std::string_view::npos;
    const std::string_view piece = left.substr(0, line_end == std::string_view::npos ? most : line_end + 1);
    link_->append(file, std::as_bytes(std::span(piece.data(), piece.size())));
    left.remove_prefix(piece.size());
  }
}

std::string Membership::report_json(const std::string& extra) const {
  Json json = extra.empty() ? Json::object() : Json::parse(extra);
  json["host"] = net::host_name();
  if (!processor_.empty()) json["processor"] = processor_;
  json["refused"] = refusals_->total();
  for (const auto& [key, count] : bytes_.snapshot()) {
    Json& entry =
        json["bytes"][key.direction == ByteLedger::Direction::sent ? "sent" : "received"][key.operation][key.peer];
    entry = {{"messages", count.messages}, {"payload", count.payload}, {"framing", count.framing}};
  }
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto category = static_cast<Category>(c);
    json["memory"][std::string(to_string(category))] = {{"peak", memory_.peak_bytes(category)},
                                                        {"current", memory_.current_bytes(category)}};
  }
  if (guest_) return json.dump();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  json["memory"]["rss_peak"] = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return json.dump();
}

namespace {

/// Converts the exception; bad_alloc becomes an error with the job's sizes, because the exception itself names none.
Error explain(const std::exception& exception, const JobOptions& job) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) == nullptr) return to_error(exception);
  return Error(ErrorKind::data, fmt::format("out of memory with --model {}, --data {}, --global-batch {}", job.model,
                                            job.data, job.global_batch));
}

}  // namespace

net::control::Interruption run_role(const RoleOptions& options, net::Role role, const MakeLife& make_life) {
  // Lines are written at once, even into a log: a line must not be lost with the process, nor overtaken by its errors.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  SignalWatch signals;
  std::optional<Membership> membership;
  try {
    membership.emplace(options, role, signals.fd(), true);
  } catch (const Error&) {
    if (const auto signal = signals.take()) die_of(*signal);
    throw;
  }
  const SignalRelay relay(signals, membership->link(), membership->clock(), options.leaves);
  return run_role(*membership, make_life);
}

net::control::Interruption run_role(Membership& membership, const MakeLife& make_life) {
  MemoryLog memory(membership);
  try {
    const Life live = make_life(membership);
    for (bool ended = false; !ended;) {
      try {
        live();
        ended = true;
      } catch (const Error& error) {
        if (!membership.outlives(error)) throw;
        if (membership.is_guest()) return {};  // the host role regroups, and starts this role anew
        out::print("{}: {}; regrouping\n", to_string(membership.self()), error.what());
        membership.regroup(error);
      }
    }
    memory.finish();
    membership.link().flush(membership.clock().now() + std::chrono::seconds(10));
    return membership.link().interrupted();
  } catch (const std::exception& exception) {
    throw membership.fail(explain(exception, membership.job()));
  }
}

}  // namespace psring
