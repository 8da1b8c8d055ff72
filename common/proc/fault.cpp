#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <sstream>
#include <string_view>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/number.h>
#include <psring/common/proc/fault.h>

namespace psring {
namespace {

constexpr std::array<std::pair<std::string_view, Fault::Kind>, 9> kKinds = {{{"slow", Fault::Kind::slow},
                                                                             {"jitter", Fault::Kind::jitter},
                                                                             {"link", Fault::Kind::link},
                                                                             {"drop", Fault::Kind::drop},
                                                                             {"duplicate", Fault::Kind::duplicate},
                                                                             {"reorder", Fault::Kind::reorder},
                                                                             {"corrupt", Fault::Kind::corrupt},
                                                                             {"kill", Fault::Kind::kill},
                                                                             {"stop", Fault::Kind::stop}}};

constexpr double kMostSlower = 1e6;
constexpr double kMostSeconds = 365.0 * 86400;

/// Parses one fault; errors quote `text`.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), rest_(text) {}

  Fault parse() {
    Fault fault;
    fault.kind = kind(until(":"));
    fault.role = role(until(":"));
    if (const std::string_view rank = until("=@"); rank != "*") fault.rank = static_cast<std::uint32_t>(whole(rank));
    const std::string_view value = begins('=') ? until("@") : "";
    const std::string_view when = begins('@') ? std::exchange(rest_, "") : "";
    switch (fault.kind) {
      case Fault::Kind::slow:
        fault.factor = number(value, "x", "a factor such as 4x");
        if (fault.factor < 1 || fault.factor > kMostSlower) bad("a factor from 1x to 1000000x");
        break;
      case Fault::Kind::jitter:
      case Fault::Kind::drop:
      case Fault::Kind::duplicate:
      case Fault::Kind::reorder:
      case Fault::Kind::corrupt:
        fault.factor = number(value, "%", "a share such as 20%") / 100;
        if (fault.factor >= 1) bad("a share below 100%");
        break;
      case Fault::Kind::link:
        if (value.empty()) bad("a rate such as 10mbit");
        fault.bits_per_second = rate(value);
        break;
      case Fault::Kind::kill:
      case Fault::Kind::stop:
        if (!value.empty() || when.empty()) bad("kill or stop, and when: @step=20 or @time=2s");
        take_when(when, fault);
        if (fault.role == net::Role::coordinator && fault.step) bad("@time=2s: a coordinator makes no steps");
        return fault;
    }
    if (!when.empty()) bad("no @: it lasts");
    if (fault.role == net::Role::coordinator) bad("kill or stop of the coordinator: it carries no tensors");
    const bool computes = fault.kind == Fault::Kind::slow || fault.kind == Fault::Kind::jitter;
    if (fault.role != net::Role::worker && computes) bad("a worker: others compute nothing");
    return fault;
  }

 private:
  [[noreturn]] void bad(std::string_view expected) const {
    fail(ErrorKind::usage, "--fault {}: expected {}", text_, expected);
  }
  /// Takes the text before one of `ends`, which stays in the rest; a colon is taken, too.
  std::string_view until(std::string_view ends) {
    if (ends == ":") {
      const std::size_t at = rest_.find(':');
      if (at == std::string_view::npos) bad("KIND:ROLE:RANK[=VALUE][@WHEN]");
      const std::string_view part = rest_.substr(0, at);
      rest_.remove_prefix(at + 1);
      return part;
    }
    const std::string_view part = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(part.size());
    return part;
  }
  bool begins(char with) {
    if (rest_.empty() || rest_.front() != with) return false;
    rest_.remove_prefix(1);
    return true;
  }
  Fault::Kind kind(std::string_view name) const {
    for (const auto& [known, kind] : kKinds)
      if (name == known) return kind;
    bad("slow, jitter, link, drop, duplicate, reorder, corrupt, kill or stop");
  }
  net::Role role(std::string_view name) const {
    for (const net::Role role : {net::Role::worker, net::Role::server, net::Role::coordinator})
      if (name == to_string(role)) return role;
    bad("a worker, a server or coordinator:0");
  }
  std::uint64_t whole(std::string_view part) const {
    const auto value = read_number<std::uint32_t>(part);
    if (!value) bad("a number, or * for all");
    return *value;
  }
  double number(std::string_view part, std::string_view unit, std::string_view expected) const {
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || std::string_view(end, part.data() + part.size()) != unit || !(value > 0) ||
        !std::isfinite(value))
      bad(expected);
    return value;
  }
  double rate(std::string_view part) const {
    try {
      return net::parse_link(std::string(part)).bits_per_second;
    } catch (const Error&) {
      bad("a rate such as 10mbit");
    }
  }
  Nanoseconds after(double time) const {
    if (time > kMostSeconds) bad("@time=2s, up to a year");
    return from_seconds(time);
  }
  void take_when(std::string_view when, Fault& fault) const {
    if (when.starts_with("step="))
      fault.step = whole(when.substr(5));
    else if (when.starts_with("time="))
      fault.after = after(number(when.substr(5), "s", "@time=2s"));
    else
      bad("@step=20 or @time=2s");
  }

  std::string_view text_;
  std::string_view rest_;
};

int signal_of(const Fault& fault) { return fault.kind == Fault::Kind::kill ? SIGKILL : SIGSTOP; }

}  // namespace

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  std::istringstream words(text);
  for (std::string word; words >> word;) faults.push_back(Parser(word).parse());
  return faults;
}

std::string only_faults(const std::string& text, const std::function<bool(const Fault&)>& passes) {
  std::string left;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    if (passes(Parser(word).parse())) left += (left.empty() ? "" : " ") + word;
  return left;
}

std::string without_ends(const std::string& text) {
  return only_faults(
      text, [](const Fault& fault) { return fault.kind != Fault::Kind::kill && fault.kind != Fault::Kind::stop; });
}

std::optional<net::FrameFaults> frame_faults(const std::string& text, std::uint64_t seed, net::Peer self) {
  std::optional<net::FrameFaults> faults;
  for (const Fault& fault : parse_faults(text)) {
    if (!fault.hits_frames()) continue;
    if (!faults) faults.emplace().seed = seed;
    if (!fault.hits(self)) continue;
    double& share = fault.kind == Fault::Kind::drop        ? faults->drop
                    : fault.kind == Fault::Kind::duplicate ? faults->duplicate
                    : fault.kind == Fault::Kind::reorder   ? faults->reorder
                                                           : faults->corrupt;
    share = fault.factor;
  }
  return faults;
}

std::vector<Fault> faults_of(const std::string& text, net::Peer peer) {
  std::vector<Fault> faults = parse_faults(text);
  std::erase_if(faults, [&](const Fault& fault) { return !fault.hits(peer); });
  return faults;
}

FaultTrigger::FaultTrigger(const std::string& faults, net::Peer self) : faults_(faults_of(faults, self)) {
  std::erase_if(faults_,
                [](const Fault& fault) { return fault.kind != Fault::Kind::kill && fault.kind != Fault::Kind::stop; });
}

/// The kernel sends the signal: no thread waits for it.
void FaultTrigger::arm() const {
  for (const Fault& fault : faults_) {
    if (fault.step) continue;
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = signal_of(fault);
    timer_t timer = nullptr;
    check(::timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "cannot create a timer for a fault");
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(fault.after);
    const itimerspec when{{}, {whole.count(), (fault.after - whole).count()}};
    check(::timer_settime(timer, 0, &when, nullptr) == 0, "cannot create a timer for a fault");
  }
}

void FaultTrigger::strike(std::uint64_t step) const {
  for (const Fault& fault : faults_)
    if (fault.step && step == *fault.step) ::raise(signal_of(fault));
}

}  // namespace psring
