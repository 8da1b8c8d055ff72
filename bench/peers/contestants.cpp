#include <algorithm>
#include <cctype>
#include <chrono>
#include <exception>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <psring/bench/peers/contestants.h>
#include <psring/bench/report.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/net/unix_socket.h>

namespace psring::bench {

namespace {

constexpr std::chrono::seconds kReadyTime{60};
constexpr std::chrono::minutes kTask{2};               // for one round of one size
constexpr std::chrono::milliseconds kAftermath{1000};  // time to find out which process ended first

}  // namespace

Team::Team(std::string name, std::size_t ranks, LocalCluster& cluster, std::filesystem::path log_folder,
           const Clock& clock)
    : name_(std::move(name)),
      control_(fmt::format("psring-bench-{}-{}", ::getpid(), name_)),
      cluster_(cluster),
      log_folder_(std::move(log_folder)),
      clock_(clock),
      listener_(net::listen_unix(control_)),
      area_file_(make_memory_file("psring-bench", SharedArea::file_bytes(ranks))),
      area_(area_file_, ranks),
      ranks_(ranks) {}

void Team::await_ready() {
  const Moment deadline = clock_.now() + kReadyTime;
  await_hellos(deadline);
  for (;;) {
    const std::vector<RankMessage> all = receive_all(deadline);
    if (all.front().kind == MessageKind::ready) return;
    for (const Rank& rank : ranks_)
      for (const RankMessage& message : all) send_message(rank.socket, MessageKind::share, message.bytes);
  }
}

void Team::await_hellos(Moment deadline) {
  std::vector<Fd> nameless;
  for (std::size_t missing = ranks_.size(); missing > 0;) {
    std::vector<int> fds{listener_.get()};
    for (const Fd& socket : nameless) fds.push_back(socket.get());
    wait(fds, deadline);
    while (std::optional<Fd> socket = net::accept_unix(listener_)) nameless.push_back(std::move(*socket));
    std::erase_if(nameless, [&](Fd& socket) {
      try {
        const std::optional<RankMessage> message = receive_message(socket);
        if (!message) return false;
        const auto rank = message->as<std::uint32_t>();
        if (message->kind != MessageKind::hello || rank >= ranks_.size() || ranks_[rank].socket) return true;
        ranks_[rank].socket = std::move(socket);
        --missing;
      } catch (const Error&) {  // a stranger; keep waiting for the ranks
      }
      return true;
    });
  }
  const auto count = static_cast<std::uint32_t>(ranks_.size());
  const int file = area_file_.get();
  for (const Rank& rank : ranks_) send_message(rank.socket, MessageKind::welcome, record_bytes(count), {&file, 1});
}

void Team::wait(std::span<const int> fds, Moment deadline) {
  const std::optional<ProcessExit> exit = cluster_.next_exit(deadline, fds);
  if (exit) ended(*exit);
  if (clock_.now() >= deadline) fail(ErrorKind::timeout, "{}: a rank does not answer", name_);
}

std::vector<RankMessage> Team::receive_all(Moment deadline) {
  for (;;) {
    std::vector<int> silent;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].message) listen_to(r);
      if (!ranks_[r].message) silent.push_back(ranks_[r].socket.get());
    }
    if (silent.empty()) break;
    wait(silent, deadline);
  }
  std::vector<RankMessage> all;
  for (Rank& rank : ranks_) {
    all.push_back(std::move(*rank.message));
    rank.message.reset();
  }
  return all;
}

void Team::listen_to(std::size_t rank) {
  try {
    ranks_[rank].message = receive_message(ranks_[rank].socket);
  } catch (const Error&) {
    lost(rank);
  }
  if (ranks_[rank].message && ranks_[rank].message->kind == MessageKind::failed) failed(rank, *ranks_[rank].message);
}

/// If another rank has ended, names that rank: this rank's failure is probably a consequence.
void Team::failed(std::size_t rank, const RankMessage& message) {
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (r != rank && net::hung_up(ranks_[r].socket)) lost(r);
  const auto kind = message.as<ErrorKind>();
  fail(kind, "{} rank {}: {}", name_, rank, message.text(sizeof kind));
}

void Team::lost(std::size_t rank) {
  const std::string process = fmt::format("{} rank {}", name_, rank);
  const Moment deadline = clock_.now() + kAftermath;
  while (const auto exit = cluster_.next_exit(deadline)) {
    if (exit->name == process) ended(*exit);
    if (exit->name == name_) fail(ErrorKind::peer_lost, "{} has ended: {}", process, message_from(*exit));
  }
  fail(ErrorKind::peer_lost, "{} has ended", process);
}

void Team::ended(const ProcessExit& exit) {
  // The rank may have reported the reason only to the benchmark.
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].socket || exit.name != fmt::format("{} rank {}", name_, r)) continue;
    std::optional<RankMessage> last;
    try {
      last = receive_message(ranks_[r].socket);
    } catch (const Error&) {  // nothing was reported
    }
    if (last && last->kind == MessageKind::failed) failed(r, *last);
  }
  if (exit.signal != 0) fail(ErrorKind::peer_lost, "{} was ended by signal {}", exit.name, exit.signal);
  const std::string message = message_from(exit);
  fail(exit.status == 0 ? ErrorKind::peer_lost : kind_of_status(exit.status), "{} ended with status {}{}{}", exit.name,
       exit.status, message.empty() ? "" : ": ", message);
}

/// Launchers print frames around messages: returns the first line with a letter, else "".
std::string Team::message_from(const ProcessExit& exit) const {
  if (exit.name != name_) return message_of(exit);
  LineReader log(log_folder_ / (exit.name + ".log"), LineReader::IfMissing::no_lines);
  for (std::string line; log.next(line);)
    if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c) != 0; })) return line;
  return "";
}

void Team::send_all(Task task) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    task.call.rank = static_cast<std::uint32_t>(r);
    try {
      send_message(ranks_[r].socket, MessageKind::task, record_bytes(task));
    } catch (const Error&) {
      lost(r);
    }
  }
}

std::vector<std::string> Team::ways(const CollectiveCall& call) {
  send_all({.kind = Task::Kind::ways, .call = call});
  const std::string text = receive_all(clock_.now() + kTask).front().text();
  std::vector<std::string> ways;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    ways.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return ways;
}

Team::Round Team::measure(Task task) {
  send_all(task);
  const std::vector<RankMessage> all = receive_all(clock_.now() + kTask);
  Round round;
  for (const RankMessage& message : all) round.wrong += message.as<Done>().wrong;
  round.detail = all.front().text(sizeof(Done));
  Samples calls;
  Samples loops;
  for (std::size_t i = 0; i < task.iterations; ++i) {
    Sample slowest;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t last = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Sample& sample = area_.samples(r)[i];
      slowest.call = std::max(slowest.call, sample.call);
      slowest.loop = std::max(slowest.loop, sample.loop);
      first = std::min(first, sample.begin);
      last = std::max(last, sample.begin + sample.call);
    }
    // In a pass no rank waits for another: the time is from the first start to the last end.
    if (task.kind == Task::Kind::limit) slowest.call = last - first;
    calls.values.push_back(1e-9 * static_cast<double>(slowest.call));
    loops.values.push_back(1e-9 * static_cast<double>(slowest.loop));
  }
  round.call_s = calls.median();
  round.loop_s = loops.median();
  return round;
}

void Team::end() {
  for (const Rank& rank : ranks_) {
    try {
      if (rank.socket) send_message(rank.socket, MessageKind::end);
    } catch (const Error&) {  // has already ended
    }
  }
}

namespace {

/// The launchers found when psring was built; "" if there is none.
constexpr const char* kOpenMpiRun = PSRING_OPENMPI_RUN;
constexpr const char* kMpichRun = PSRING_MPICH_RUN;

struct Launcher {
  std::string package;            ///< Debian's package
  std::vector<std::string> argv;  ///< command in front of -n RANKS PROGRAM; empty: ranks are started one by one
  std::vector<std::string> tcp;   ///< more arguments that restrict the library to TCP
};

/// Ranks are not bound to processors, because psring's ranks are not bound either.
const std::map<std::string, Launcher>& launchers() {
  static const std::map<std::string, Launcher> table{
      {"openmpi",
       {"libopenmpi-dev openmpi-bin",
        {kOpenMpiRun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"},
        {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}}},
      {"mpich",
       {"libmpich-dev mpich",
        {kMpichRun, "-bind-to", "none"},
        {"-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", "lo"}}},
      {"gloo", {"libgloo-dev", {}, {}}}};
  return table;
}

constexpr std::chrono::seconds kFarewell{3};

}  // namespace

Contestants::Contestants(const CollectivesOptions& options, const std::vector<PsringWay>& ways)
    : options_(options),
      // A vector has at least one element per rank.
      max_bytes_(std::max(*std::max_element(options.sizes.begin(), options.sizes.end()), options.workers * 8)),
      cluster_(folder_.logs(), clock_) {
  // Report all usage errors before anything is started.
  for (const std::string& peer : options.peers) peer_program(peer);
  start_psring(ways);
  for (const std::string& peer : options.peers) start_peer(peer);
  for (Team& team : teams_) team.await_ready();
}

Contestants::~Contestants() {
  // After an error a rank may be stuck, so do not wait for it.
  if (std::uncaught_exceptions() == exceptions_) {
    for (Team& team : teams_) team.end();
    const Moment deadline = clock_.now() + kFarewell;
    while (cluster_.next_exit(deadline)) {
    }
  }
  cluster_.terminate_all(kFarewell);
}

Team& Contestants::add(const std::string& name) {
  return teams_.emplace_back(name, options_.workers, cluster_, folder_.logs(), clock_);
}

void Contestants::start_psring(const std::vector<PsringWay>& ways) {
  const Team& team = add("psring");
  for (std::size_t r = 0; r < options_.workers; ++r) {
    std::vector<std::string> argv = own_command("rank", {{"--control", team.control()},
                                                         {"--key", folder_.key_file()},
                                                         {"--rank", std::to_string(r)},
                                                         {"--max-bytes", std::to_string(max_bytes_)},
                                                         {"--transport", options_.transport},
                                                         {"--streams", std::to_string(options_.streams)}});
    if (options_.encrypt) argv.emplace_back("--encrypt");
    if (!options_.link.empty()) argv.insert(argv.end(), {"--link", options_.link});
    if (!options_.registered) argv.emplace_back("--unregistered");
    argv.emplace_back("--ways");
    for (const PsringWay& way : ways) argv.push_back(to_string(way));
    cluster_.start(fmt::format("psring rank {}", r), std::move(argv));
  }
}

std::string Contestants::peer_program(const std::string& name) const {
  const auto found = launchers().find(name);
  if (found == launchers().end())
    fail(ErrorKind::usage, "--peers: expected some of openmpi, mpich, gloo, got '{}'", name);
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("psring-bench-" + name);
  if (!std::filesystem::exists(program))
    fail(ErrorKind::usage,
         "--peers {}: was not found when psring was built: apt-get install {}, then configure and build again", name,
         found->second.package);
  return program.string();
}

void Contestants::start_peer(const std::string& name) {
  const Launcher& launcher = launchers().at(name);
  const Team& team = add(name);
  std::vector<std::string> argv = launcher.argv;
  if (options_.transport == "tcp") argv.insert(argv.end(), launcher.tcp.begin(), launcher.tcp.end());
  const std::string program = peer_program(name);
  if (!launcher.argv.empty()) {
    for (const std::string& word :
         {std::string("-n"), std::to_string(options_.workers), program, team.control(), std::to_string(max_bytes_)})
      argv.push_back(word);
    cluster_.start(name, argv);
    return;
  }
  for (std::size_t r = 0; r < options_.workers; ++r)
    cluster_.start(fmt::format("{} rank {}", name, r),
                   {program, team.control(), std::to_string(max_bytes_), std::to_string(r), folder_.file(name)});
}

}  // namespace psring::bench
