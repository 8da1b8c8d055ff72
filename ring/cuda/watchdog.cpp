#include <chrono>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/ring/cuda/watchdog.h>

namespace psring::ring::cuda {
namespace {

constexpr std::chrono::milliseconds kEvery{10};

int current_gpu() {
  int gpu = 0;
  psring::cuda::check_call(cudaGetDevice(&gpu), "cudaGetDevice");
  return gpu;
}

}  // namespace

Watchdog::Watchdog(Device& device, GroupOptions options)
    : device_(device), options_(std::move(options)), gpu_(current_gpu()) {
  device.check_after_wait([this] { check(); });
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Watchdog::~Watchdog() {
  device_.check_after_wait([] {});
}

/// Does not take the mutex, which the thread holds while NCCL aborts.
void Watchdog::rethrow() const { throw Error(*error_); }

void Watchdog::add(Communicator& communicator) {
  const MutexLock lock(mutex_);
  communicators_.push_back(&communicator);
}
void Watchdog::remove(Communicator& communicator) {
  const MutexLock lock(mutex_);
  std::erase(communicators_, &communicator);
}

void Watchdog::began(std::shared_ptr<const psring::cuda::Event> done, const Call& call, std::uint64_t number,
                     std::size_t rank) {
  const MutexLock lock(mutex_);
  in_flight_.push_back({std::move(done), call, number, rank, SystemClock().now()});
}

void Watchdog::run(const std::stop_token& stop) {
  cudaSetDevice(gpu_);
  MutexLock lock(mutex_);
  while (!changed_.wait_for(mutex_, stop, kEvery, [&] { return stop.stop_requested(); })) {
    if (error_) continue;
    if (const auto error = look()) give_up(*error);
  }
}

/// Asks CUDA last: its call may wait for another call, which waits for the device.
std::optional<Error> Watchdog::look() {
  try {
    if (options_.check) options_.check();
    if (auto error = of_nccl()) return error;
    while (!in_flight_.empty() && in_flight_.front().done->reached()) in_flight_.pop_front();
  } catch (const std::exception& exception) {
    return to_error(exception);
  }
  return too_slow();
}

std::optional<Error> Watchdog::too_slow() {
  if (in_flight_.empty() || options_.op_timeout <= Nanoseconds{0}) return std::nullopt;
  if (SystemClock().now() - in_flight_.front().since < options_.op_timeout) return std::nullopt;
  return Error(ErrorKind::timeout,
               fmt::format("not complete after {:.1f} s", std::chrono::duration<double>(options_.op_timeout).count()));
}

std::optional<Error> Watchdog::of_nccl() {
  for (Communicator* const communicator : communicators_) {
    const auto failure = communicator->failure();
    if (!failure) continue;
    const Moment now = SystemClock().now();
    if (!nccl_failed_) nccl_failed_ = now;
    if (now - *nccl_failed_ > kUntilTheJobKnows) return Error(ErrorKind::peer_lost, "NCCL: " + *failure);
  }
  return std::nullopt;
}

void Watchdog::give_up(const Error& error) {
  error_ = error;
  if (!in_flight_.empty()) {
    const InFlight& first = in_flight_.front();
    error_ = error.with_context(fmt::format("[ring] rank {}: {}", first.rank, name_of(first.call, first.number)));
  }
  failed_ = true;
  Communicator::abort(communicators_);
}

void Watchdog::give_up() {
  const MutexLock lock(mutex_);
  if (!error_) give_up(Error(ErrorKind::peer_lost, "a group of GPUs that was left before its end"));
}

}  // namespace psring::ring::cuda
