#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>

#include <sched.h>

#include <psring/bench/peers/rank.h>

namespace psring::bench {
namespace {

constexpr std::chrono::milliseconds kCompute{5};

/// Moves each rank to a different processor, if there are enough, and then releases it again. Ranks that were woken
/// together often share a processor, and calls that take microseconds would keep them there for a whole round.
void spread_out(std::size_t rank) {
  cpu_set_t free;
  if (::sched_getaffinity(0, sizeof free, &free) != 0) return;
  std::size_t skip = rank % static_cast<std::size_t>(CPU_COUNT(&free));
  std::size_t cpu = 0;
  while (!CPU_ISSET(cpu, &free) || skip-- > 0) ++cpu;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  ::sched_setaffinity(0, sizeof free, &free);
}

/// Reads the whole result, like a program that uses it.
void read_all(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i + sizeof sum <= bytes; i += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    sum += word;
  }
  asm volatile("" : : "r"(sum));  // keeps the compiler from removing the loop
}

/// Reads `traffic.read` bytes, and rewrites the first `traffic.written` of them in place: the minimum memory traffic of
/// such a call.
void pass_over(std::byte* data, const CollectiveCall::Traffic& traffic) {
  // Keep the bound in a register: stores of bytes could alias it.
  const std::size_t written = traffic.written / sizeof(std::uint64_t) * sizeof(std::uint64_t);
  for (std::size_t i = 0; i < written; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof word);
    word += 0x0101010101010101U;
    std::memcpy(data + i, &word, sizeof word);
  }
  asm volatile("" : : "r"(data) : "memory");
  if (traffic.read > traffic.written) read_all(data + traffic.written, traffic.read - traffic.written);
}

class Server {
 public:
  Server(RankLink& link, RankLibrary& library) : link_(link), library_(library) {}

  void run() {
    while (const std::optional<Task> task = link_.next_task()) {
      if (task->kind == Task::Kind::ways)
        link_.answer_ways(library_.ways(task->call));
      else
        measure(*task);
    }
  }

 private:
  PreparedCall prepare(const Task& task) {
    if (task.kind == Task::Kind::measure) return library_.prepare(task.call, task.way);
    if (own_bytes_ < task.call.bytes()) {
      own_bytes_ = task.call.bytes();
      own_ = std::make_unique<std::byte[]>(own_bytes_);
    }
    std::byte* data = own_.get();
    return {data, data, [data, traffic = task.call.traffic()] { pass_over(data, traffic); }, ""};
  }

  void measure(const Task& task) {
    if (task.iterations + std::size_t{task.warm_up} > kMaxIterations || task.call.rank != link_.rank())
      fail(ErrorKind::protocol, "a task for another rank");
    const PreparedCall prepared = prepare(task);
    spread_out(link_.rank());
    const std::size_t wrong = make_calls(
        task, prepared, [this] { link_.area().barrier(); }, link_.area().samples(link_.rank()));
    link_.answer({wrong}, prepared.detail);
  }

  RankLink& link_;
  RankLibrary& library_;
  std::unique_ptr<std::byte[]> own_;  ///< for the passes of the limit
  std::size_t own_bytes_ = 0;
};

}  // namespace

// malloc and free: programs that do not use an arena allocate their vectors like this.
// NOLINTBEGIN(cppcoreguidelines-no-malloc)
PlainVector::PlainVector(std::size_t bytes) : memory_(std::malloc(std::max<std::size_t>(bytes, 1))) {
  if (memory_ == nullptr) fail(ErrorKind::data, "no memory for a vector of {} bytes", bytes);
  std::memset(memory_.get(), 0, bytes);
}

void PlainVector::Free::operator()(void* memory) const { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)

std::size_t make_calls(const Task& task, const PreparedCall& prepared, const std::function<void()>& barrier,
                       std::span<Sample> samples) {
  const Contents contents(task.call);
  const std::size_t last = std::size_t{task.warm_up} + task.iterations - 1;
  const std::size_t result_bytes = task.call.result() * size_bytes(task.call.dtype);
  const SystemClock clock;
  const Moment computed = clock.now() + kCompute;
  while (clock.now() < computed) contents.fill(prepared.input, last + 1);
  for (std::size_t i = 0; i <= last; ++i) {
    const Moment begin = clock.now();
    contents.fill(prepared.input, i);
    const Moment filled = clock.now();
    barrier();
    const Moment called = clock.now();
    prepared.run();
    const Moment returned = clock.now();
    read_all(prepared.result, result_bytes);
    const Moment end = clock.now();
    if (i >= task.warm_up)
      samples[i - task.warm_up] = {called.time_since_epoch().count(), (returned - called).count(),
                                   (filled - begin + (end - called)).count()};
  }
  const bool check = task.check && task.kind == Task::Kind::measure;
  return check ? contents.count_wrong(prepared.result, last) : 0;
}

void serve_rank(RankLink& link, RankLibrary& library) { Server(link, library).run(); }

int run_rank(RankLink& link, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const Error& error) {
    link.fail(error);
    return exit_status(error.kind());
  } catch (const std::exception& error) {
    link.fail(Error(ErrorKind::peer_lost, error.what()));
    return exit_status(ErrorKind::peer_lost);
  }
}

}  // namespace psring::bench
