#include <algorithm>
#include <chrono>
#include <exception>
#include <map>

#include <fmt/format.h>

#include <psring/bench/peers/contestants.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {
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
      cluster_(folder_.path(), clock_) {
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
  return teams_.emplace_back(name, options_.workers, cluster_, folder_.path(), clock_);
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
