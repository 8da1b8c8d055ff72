// A worker of a job whose ranks call collectives, for tests of whole processes:
//   collectives_rank ENDPOINT KEYFILE time BYTES ROUNDS          rank 0 prints the least seconds of an all-reduce
//   collectives_rank ENDPOINT KEYFILE hit COLLECTIVE SIGNAL      rank 1 sends itself the signal within call 17
//   collectives_rank ENDPOINT KEYFILE differ COLLECTIVE OTHER    in call 17 rank 1 calls another one
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <signal.h>

#include <psring/cli/app.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/collectives.h>
#include <psring/ring/session.h>

using namespace psring;
using namespace psring::ring;

namespace {

constexpr std::size_t kElements = 3 * 40000;  // takes several messages
constexpr int kCall = 17;

/// A collective, in two steps: what starts it, and the rest.
std::map<std::string, std::function<Work()>> collectives(Session& session) {
  ProcessGroup& group = session.group();
  const std::size_t n = group.size();
  const std::span<float> all = session.allocate(kElements);
  const std::span<float> other = session.allocate(kElements);
  const std::span<float> part = all.first(kElements / n);
  const Parts parts = even_parts(kElements, n);
  const auto waited = [](auto call) {
    return [=] {
      call();
      return Work();
    };
  };
  return {
      {"all_reduce", [=, &group] { return group.all_reduce(all, ReduceOp::Kind::sum); }},
      {"reduce_scatter", [=, &group] { return group.reduce_scatter(all, parts, ReduceOp::Kind::sum); }},
      {"all_gather", [=, &group] { return group.all_gather(all, parts); }},
      {"broadcast", [=, &group] { return group.broadcast(all, 1); }},
      {"barrier", [&group] { return group.barrier(); }},
      {"recv", [=, &group] { return group.rank() == 1 ? Work() : group.recv(all, 1); }},
      {"reduce", waited([=, &group] { reduce_to(group, all, ReduceOp::Kind::sum, 0); })},
      {"gather", waited([=, &group] { gather(group, part, other, 0); })},
      {"scatter", waited([=, &group] { scatter(group, other, part, 1); })},
      {"all_to_all", waited([=, &group] { all_to_all(group, all, other); })},
  };
}

void hit(Session& session, const std::string& name, int signal) {
  const auto call = collectives(session).at(name);
  const bool composed = name == "reduce" || name == "gather" || name == "scatter" || name == "all_to_all";
  for (int i = 0; i < kCall; ++i)
    if (name != "recv") call().wait();
  if (session.group().rank() != 1) {
    call().wait();
    return session.group().barrier().wait();  // not every rank of a composed one needs rank 1
  }
  Work begun;
  if (!composed) begun = call();
  ::raise(signal);
}

void differ(Session& session, const std::string& name, const std::string& other) {
  const auto calls = collectives(session);
  for (int i = 0; i < kCall; ++i) calls.at(name)().wait();
  calls.at(session.group().rank() == 1 ? other : name)().wait();
}

/// The slowest rank's time, of calls that all begin together and whose result is checked.
void time(Session& session, std::size_t bytes, std::size_t rounds) {
  ProcessGroup& group = session.group();
  const std::span<float> vector = session.allocate(bytes / sizeof(float));
  const SystemClock clock;
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(vector.begin(), vector.end(), static_cast<float>(group.rank() + 1));
    group.barrier().wait();
    const Moment start = clock.now();
    group.all_reduce(vector, ReduceOp::Kind::sum).wait();
    double took = seconds(clock.now() - start);
    const std::size_t ranks = group.size() * (group.size() + 1) / 2;
    const auto sum = static_cast<float>(ranks);
    if (std::any_of(vector.begin(), vector.end(), [&](float value) { return value != sum; }))
      fail(ErrorKind::check_failed, "a wrong sum");
    group.all_reduce(std::span(&took, 1), ReduceOp::Kind::max).wait();
    times.push_back(took);
  }
  if (group.rank() == 0) std::printf("%.6f\n", *std::min_element(times.begin(), times.end()));
  session.finish();
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() != 6) fail(ErrorKind::usage, "six arguments");
  Session session({.endpoint = arguments[1], .key_file = arguments[2]});
  if (arguments[3] == "time") time(session, std::stoul(arguments[4]), std::stoul(arguments[5]));
  if (arguments[3] == "hit") hit(session, arguments[4], std::stoi(arguments[5]));
  if (arguments[3] == "differ") differ(session, arguments[4], arguments[5]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return App::guard([&] { return run({argv, argv + argc}); });
}
