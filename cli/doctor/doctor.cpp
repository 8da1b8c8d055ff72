#include <chrono>
#include <csignal>
#include <memory>
#include <string>

#include <version.h>

#include <psring/cli/commands.h>
#include <psring/cli/doctor/doctor_checks.h>
#include <psring/cli/doctor/doctor_link.h>
#include <psring/cli/options/parse.h>
#include <psring/cli/plan/fit_of_link.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/proc/options/check.h>

namespace psring::cli {
namespace {

constexpr auto kLinkMeasure = std::chrono::milliseconds(700);
constexpr int kSomethingMissing = 3;

struct DoctorFlags {
  std::size_t processes = 8;
  std::string peer;
  std::string listen;
  std::string key;
  std::string json;
  std::string fit;
  double join_timeout = 30;
};

const char* to_string(Level level) { return level == Level::ok ? "ok" : level == Level::warn ? "warn" : "FAIL"; }

/// The findings: printed line by line as they are made, and kept for --json.
class Report {
 public:
  void add(const std::string& name, const Judgement& judged) {
    const std::string cure = judged.cure.empty() ? "" : "  -> " + judged.cure;
    out::print("{:<5} {:<19} {}{}\n", to_string(judged.level), name, judged.figure, cure);
    std::fflush(stdout);
    if (judged.level == Level::fail) ++failed_;
    if (judged.level == Level::warn) ++warned_;
    checks_.push_back({{"level", to_string(judged.level)},
                       {"what", name},
                       {"figure", judged.figure},
                       {"cure", judged.cure},
                       {"values", judged.values}});
  }
  int status() const { return failed_ > 0 ? kSomethingMissing : 0; }
  void conclude() const {
    if (failed_ > 0) {
      out::print("{} of {} checks fail: jobs cannot run until this is fixed\n", failed_, checks_.size());
    } else {
      out::print("nothing that a job needs is missing{}\n",
                 warned_ > 0 ? fmt::format("; {} of {} checks warn", warned_, checks_.size()) : "");
    }
  }
  void save(const std::string& file) const {
    const Json all = {{"version", kVersion}, {"status", status()}, {"checks", checks_}};
    write_whole(file, all.dump(2) + '\n');
  }

 private:
  Json checks_ = Json::array();
  std::size_t failed_ = 0;
  std::size_t warned_ = 0;
};

void check_flags(const DoctorFlags& flags) {
  options::check_count("--processes", flags.processes, options::kMostProcesses);
  options::check_duration("--join-timeout", flags.join_timeout, 0.1);
  if (!flags.peer.empty() && !flags.listen.empty())
    fail(ErrorKind::usage, "--peer and --listen: one doctor asks, the other answers");
  const bool linked = !flags.peer.empty() || !flags.listen.empty();
  if (linked && flags.key.empty())
    fail(ErrorKind::usage, "--key: expected with {}; psring keygen makes one",
         flags.peer.empty() ? "--listen" : "--peer");
  if (!linked && !flags.key.empty()) fail(ErrorKind::usage, "--key: goes with --peer or --listen");
  if (flags.peer.empty() && !flags.fit.empty()) fail(ErrorKind::usage, "--fit: goes with --peer");
  if (!flags.listen.empty() && !flags.json.empty())
    fail(ErrorKind::usage, "--json: goes with the doctor that measures, not with --listen");
}

Moment deadline_of(const DoctorFlags& flags) { return SystemClock().now() + from_seconds(flags.join_timeout); }

int answer(const DoctorFlags& flags) {
  const net::JobKey key = net::JobKey::load(flags.key);
  LinkAnswerer answerer(key, net::resolve_endpoint("--listen", flags.listen, 0));
  out::print("waiting at {} for psring doctor --peer {} --key {}\n", answerer.endpoint(), answerer.endpoint(),
             flags.key);
  std::fflush(stdout);
  out::print("answered {}, which prints the measurements\n", answerer.answer(deadline_of(flags)));
  return 0;
}

/// Opens the link first, so that its errors come before the slow checks.
std::unique_ptr<LinkAsker> open_link(const DoctorFlags& flags, const net::Endpoint& peer) {
  try {
    return std::make_unique<LinkAsker>(net::JobKey::load(flags.key), to_string(peer), deadline_of(flags));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unauthorised) throw error.with_context("--peer " + flags.peer);
    if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::timeout) throw;
    throw Error(error.kind(), fmt::format("--peer {}: no doctor answers ({}); start there: psring doctor --listen {} "
                                          "--key FILE",
                                          flags.peer, error.what(), to_string(peer)));
  }
}

int examine(const DoctorFlags& flags) {
  std::signal(SIGXFSZ, SIG_IGN);  // The check reports a limit on file sizes, while the signal would end the process.
  Examination examination{.processes = flags.processes};
  std::unique_ptr<LinkAsker> link;
  if (!flags.fit.empty()) bench::open_fit("--fit", flags.fit, bench::fit_of_host().host);
  if (!flags.peer.empty()) {
    examination.peer = net::resolve_endpoint("--peer", flags.peer);
    link = open_link(flags, *examination.peer);
  }
  Report report;
  if (link) {
    const LinkFigures figures = link->measure(kLinkMeasure);
    link.reset();
    report.add("link", judge_link(figures));
    report.add("link delay", judge_delay(figures));
    report.add("clocks", judge_offset(figures));
    if (!flags.fit.empty()) {
      bench::Fit fit = fit_of_program();
      add_link(figures, fit);
      bench::add_to_fit("--fit", flags.fit, fit);
    }
  }
  for (const HostCheck& check : doctor_checks()) report.add(check.name, judge(check, examination));
  report.conclude();
  if (!flags.json.empty()) report.save(flags.json);
  return report.status();
}

}  // namespace

Command add_doctor(const Flags& program) {
  const Flags command = program.add_command("doctor", "check that this host can run jobs, and measure it");
  auto flags = std::make_shared<DoctorFlags>();  // shared: the parser fills it in, the command reads it
  command.add("--processes", flags->processes, "processes of a job on this host, which its limits must allow")
      .show_default();
  command.add("--peer", flags->peer, "HOST:PORT of a doctor that listens: also measure the link to it");
  command.add("--listen", flags->listen,
              "ADDR:PORT to listen at (port 0: any free port): answer one doctor, and check nothing");
  command.add("--key", flags->key, "key file, the same on both hosts").show_value("FILE");
  command.add("--join-timeout", flags->join_timeout, "seconds to wait for the other doctor").show_default();
  command.add("--json", flags->json, "also write the findings to this file").show_value("FILE");
  command.add("--fit", flags->fit, "with --peer: also add the link's costs to this file of psring fit")
      .show_value("FILE");
  add_config(command);
  command.add_footer(
      "Prints one line per check: ok, warn (jobs run, but slower, or not all of them) or FAIL; the name; the finding "
      "-> the cure.\n"
      "Exit status: 0, or 3 if something that a job needs is missing.");
  return [flags](const Invocation&) {
    check_flags(*flags);
    return flags->listen.empty() ? examine(*flags) : answer(*flags);
  };
}

}  // namespace psring::cli
