#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/common/proc/fault.h>
#include <psring/common/proc/options/check.h>
#include <psring/optim/job_optimizer.h>
#include <psring/optim/optimizers.h>
#include <psring/ring/ring_links.h>
#include <psring/ring/session.h>
#include <psring/ring/shm/world.h>
#include <psring/ring/split.h>
#include <psring/worker/c/job.h>
#include <psring/worker/c/vector.h>
#include <psring/worker/programs/table_client.h>

namespace psring::c {

namespace {

constexpr const char* kHasLeft = "this worker has left the job";
constexpr std::size_t kMostArenaBytes = std::size_t{1} << 47;  // that a process can address

/// A job without options, but with this one's optimizer, whose own defaults are a part of the job.
JobOptions plain_of(const JobOptions& job) {
  JobOptions plain;
  optim::OptimizerRegistry optimizers;
  optim::register_builtin_optimizers(optimizers);
  JobOptions bare;
  bare.optimizer = job.optimizer;
  optim::fill_in(plain, *optim::make_optimizer(optimizers, bare));
  return plain;
}

/// Throws usage if an option of the job has no effect on this program, which trains by itself.
void check_options(const JobOptions& job) {
  options::check_in_programs(job, plain_of(job));
  for (const Fault& fault : parse_faults(job.fault)) {
    const bool of_steps = fault.kind == Fault::Kind::slow || fault.kind == Fault::Kind::jitter || fault.step;
    if (fault.role == net::Role::worker && of_steps)
      fail(ErrorKind::usage, "--fault {}: has no effect on a program that trains by itself, whose steps are its own",
           job.fault);
  }
}

}  // namespace

struct Job::Memory {
  explicit Memory(std::size_t bytes) {
    if (bytes > kMostArenaBytes) fail(ErrorKind::usage, "psring_join: {} bytes of memory", bytes);
    arena = std::make_shared<Arena>(bytes + ring::kShmArenaBytes);
  }

  std::shared_ptr<Arena> arena;  ///< shared with the group
  std::optional<ring::RingLinks> links;
  std::unique_ptr<ring::ProcessGroup> world;
  std::unique_ptr<Vector> vector;               ///< null until it is opened
  std::unique_ptr<worker::TableClient> tables;  ///< as well
};

Job::Job(const RoleOptions& options, std::size_t memory_bytes)
    : pid_(::getpid()), member_(options, net::Role::worker), memory_(std::make_shared<Memory>(memory_bytes)) {
  member_.keep(memory_);
  memory_->links.emplace(member_.key(), member_.link_options(), member_.bytes());
  const std::vector<net::Member> members = member_.meet(memory_->links->listen());
  const auto workers = of_role(members, net::Role::worker);
  memory_->links->become(member_.link_options().self);
  memory_->world = ring::make_job_group(member_, *memory_->links, workers, memory_->arena, false);
  check_options(member_.job());
  link_to_servers(of_role(members, net::Role::server));
  engine_ = std::make_unique<Engine>(*memory_->world, [this] { member_.link().check(); });
}

Job::~Job() {
  member_.link().on_change({});
  try {
    if (!left_) engine_->check();
  } catch (const Error& error) {  // reports to the coordinator why this worker leaves
    member_.link().fail(error);
  }
  engine_.reset();
  const MutexLock lock(mutex_);
  buffers_.clear();
}

void Job::link_to_servers(const std::vector<net::Member>& servers) {
  if (servers.empty()) return;
  member_.links().connect(servers, *memory_->arena, member_.deadline());
  net::Transport& transport = member_.links().transport();
  member_.link().on_change([&transport] { transport.wake(); });
}

Vector& Job::open_vector(std::vector<UnitSpec> units) {
  const MutexLock lock(mutex_);
  if (memory_->vector != nullptr) fail(ErrorKind::usage, "psring_vector_open: the job has a vector already");
  if (memory_->tables != nullptr) fail(ErrorKind::usage, "psring_vector_open: the job has tables: join a second job");
  memory_->vector = std::make_unique<Vector>(member_, *memory_->arena, std::move(units));
  return *memory_->vector;
}

worker::TableClient& Job::open_tables() {
  const MutexLock lock(mutex_);
  if (memory_->vector != nullptr) fail(ErrorKind::usage, "psring_table_open: the job has a vector: join a second job");
  if (memory_->tables == nullptr) memory_->tables = std::make_unique<worker::TableClient>(member_, *memory_->arena);
  return *memory_->tables;
}

ring::ProcessGroup& Job::world() { return *memory_->world; }

bool Job::is_own_process() const { return ::getpid() == pid_; }

void Job::require_own_process() const {
  if (!is_own_process())
    fail(ErrorKind::usage, "process {} was forked from process {}, which joined the job: only that one is a member",
         ::getpid(), pid_);
}

std::span<std::byte> Job::allocate(std::size_t bytes, Category category) {
  const MutexLock lock(mutex_);
  Buffer buffer(std::max<std::size_t>(bytes, 1), category, member_.memory(), memory_->arena.get());
  const std::span<std::byte> memory = buffer.bytes();
  buffers_.emplace(memory.data(), std::move(buffer));
  return memory;
}

void Job::release(void* memory) {
  const MutexLock lock(mutex_);
  if (buffers_.erase(memory) == 0) fail(ErrorKind::usage, "psring_release: not memory of psring_allocate");
}

void Job::book(Category category, std::int64_t bytes) {
  const MutexLock lock(mutex_);
  std::size_t& booked = booked_.at(static_cast<std::size_t>(category));
  if (bytes >= 0) {
    constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
    if (static_cast<std::size_t>(bytes) > kMost - booked)
      fail(ErrorKind::usage, "psring_book: {} bytes more than the {} that are booked", bytes, booked);
    member_.memory().book(category, static_cast<std::size_t>(bytes));
    booked += static_cast<std::size_t>(bytes);
    return;
  }
  const std::size_t fewer = std::size_t{0} - static_cast<std::size_t>(bytes);
  if (fewer > booked) fail(ErrorKind::usage, "psring_book: {} bytes fewer of {} that are booked", fewer, booked);
  member_.memory().release(category, fewer);
  booked -= fewer;
}

const MemoryLedger& Job::memory() { return member_.memory(); }

std::unique_ptr<ring::ProcessGroup> Job::split(ring::ProcessGroup& parent, std::span<const std::uint32_t> ranks,
                                               std::uint32_t id) {
  ring::Split split{.id = id_of_group(id), .ranks = {ranks.begin(), ranks.end()}, .next_group = id_of_group(id) + 1};
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    if (ranks[place] >= parent.size())
      fail(ErrorKind::usage, "psring_split: rank {} of a group of {}", ranks[place], parent.size());
    if (std::count(ranks.begin(), ranks.end(), ranks[place]) != 1)
      fail(ErrorKind::usage, "psring_split: rank {} is named twice", ranks[place]);
  }
  const auto own = std::find(split.ranks.begin(), split.ranks.end(), parent.rank());
  if (own == split.ranks.end())
    fail(ErrorKind::usage, "psring_split: rank {} is not among the group's ranks", parent.rank());
  split.rank = static_cast<std::size_t>(own - split.ranks.begin());
  return engine_->locked([&] {
    if (split_ids_.contains(id)) fail(ErrorKind::usage, "psring_split: the id {} was given to a group before", id);
    std::unique_ptr<ring::ProcessGroup> group = parent.subgroup(split);
    split_ids_.insert(id);
    return group;
  });
}

void Job::require_member() const {
  require_own_process();
  if (left_) fail(ErrorKind::usage, kHasLeft);
}

bool Job::leave(Moment until) {
  const MutexLock lock(mutex_);
  if (left_) fail(ErrorKind::usage, kHasLeft);  // another thread's call
  try {
    left_ = leave_with_all(until);
    if (left_) {
      engine_->end_flights(kHasLeft);
      end_vector();
    }
    return left_;
  } catch (const Error& error) {  // the job has failed: no process waits for this worker any more
    member_.link().fail(error);
    member_.link().leave();
    end_vector();
    throw;
  }
}

bool Job::leave_with_all(Moment until) {
  net::ControlLink& link = member_.link();
  // The other workers may still wait for this one's gradients.
  if (last_barrier_ == nullptr && memory_->tables != nullptr && !memory_->tables->settle(until)) return false;
  if (last_barrier_ == nullptr)
    last_barrier_ = engine_->start([this] {
      auto works = std::make_shared<Works>("the job's last barrier");
      works->add(world().last_barrier());
      return works;
    });
  if (!told_done_) {
    if (!engine_->wait(*last_barrier_, until)) return false;
    engine_->locked([this] { world().account(); });
    link.on_change({});
    link.report(member_.report_json(""));
    link.done();
    told_done_ = true;
  }
  if (!link.await_finish(until)) return false;
  last_barrier_.reset();
  link.leave();
  return true;
}

std::string Job::leaving() {
  const MutexLock lock(mutex_);
  if (told_done_) return "all ranks have come; waiting for the coordinator to end the job";
  if (last_barrier_ == nullptr) return "waiting for the servers to take the gradients of rows";
  return engine_->doing(*last_barrier_);
}

void Job::abort(const std::string& reason) {
  member_.link().fail(Error(ErrorKind::peer_lost, reason), true);  // the coordinator names this worker
  engine_->end(Error(ErrorKind::peer_lost, fmt::format("worker {}: {}", member_.rank(), reason)));
  try {
    member_.link().flush(member_.clock().now() + std::chrono::seconds(1));
  } catch (const Error&) {  // the coordinator has gone, or is slow: the job ends all the same
  }
  const MutexLock lock(mutex_);
  member_.link().leave();
  end_vector();
}

void Job::end_vector() {
  if (memory_->vector != nullptr) memory_->vector->end();
}

void Job::check() { engine_->check(); }

}  // namespace psring::c
