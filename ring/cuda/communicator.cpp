#include <chrono>
#include <thread>
#include <utility>

#include <psring/common/base/system/mutex.h>
#include <psring/common/base/text/error.h>
#include <psring/ring/cuda/communicator.h>

namespace psring::ring::cuda {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kUntilTheEnd{2};  // the wait for other ranks to end the communicator

/// Yields at first: most background work of NCCL takes as long as starting a thread.
void pause(steady_clock::time_point since) {
  if (steady_clock::now() - since < std::chrono::microseconds(200))
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

ncclUniqueId agree_on_id(ProcessGroup& bootstrap) {
  ncclUniqueId id{};
  if (bootstrap.rank() == 0) require(ncclGetUniqueId(&id), "ncclGetUniqueId");
  bootstrap.broadcast({reinterpret_cast<std::byte*>(&id), sizeof id, {DType::u8}}, 0).wait();
  return id;
}

}  // namespace

/// A call that NCCL refuses is the fault of this build or machine. Any other error counts as a lost peer, unless the
/// job knows better.
void require(ncclResult_t result, std::string_view call, ncclComm_t communicator) {
  if (!failed(result)) return;
  const char* const more = communicator == nullptr ? "" : ncclGetLastError(communicator);
  const bool refused = result == ncclInvalidUsage || result == ncclInvalidArgument;
  fail(refused ? ErrorKind::usage : ErrorKind::peer_lost, "NCCL: {}: {}{}{}", call, ncclGetErrorString(result),
       *more == '\0' ? "" : ": ", more);
}

Communicator::Communicator(ProcessGroup& bootstrap, Options options) : options_(std::move(options)) {
  const ncclUniqueId id = agree_on_id(bootstrap);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&handle_, static_cast<int>(bootstrap.size()), id,
                                                     static_cast<int>(bootstrap.rank()), &config);
  try {
    require(result, "ncclCommInitRankConfig", handle_);
    settle("ncclCommInitRankConfig");
  } catch (...) {
    Communicator* const self = this;
    abort(std::span(&self, 1));
    throw;
  }
}

Communicator::~Communicator() {
  if (aborted_ || handle_ == nullptr) return;
  Communicator* const self = this;
  try {
    options_.check();
  } catch (const std::exception&) {
    abort(std::span(&self, 1));  // an orderly end may wait for the lost rank
    return;
  }
  for (const auto& [memory, handle] : registered_) ncclCommDeregister(handle_, handle);
  ncclResult_t result = ncclCommFinalize(handle_);
  const auto start = steady_clock::now();
  while (result == ncclInProgress && steady_clock::now() - start < kUntilTheEnd) {
    pause(start);
    result = state();
  }
  if (result == ncclSuccess)
    ncclCommDestroy(handle_);
  else
    abort(std::span(&self, 1));
}

ncclResult_t Communicator::state() {
  const MutexLock lock(mutex_);
  if (aborted_) return ncclRemoteError;
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &result);
  return asked == ncclSuccess ? result : asked;
}

/// If NCCL failed, asks the job for the reason for a while: the job knows the lost peer.
void Communicator::settle(std::string_view name) {
  const auto start = steady_clock::now();
  for (;; pause(start)) {
    options_.check();
    const ncclResult_t result = state();
    if (result == ncclSuccess) return;
    const auto waited = steady_clock::now() - start;
    if (failed(result) && (result == ncclInvalidUsage || waited > kUntilTheJobKnows)) require(result, name, handle_);
    if (!failed(result) && waited > options_.patience)
      fail(ErrorKind::timeout, "NCCL: {}: no connections to all ranks within {:.0f} s", name,
           std::chrono::duration<double>(options_.patience).count());
  }
}

void Communicator::register_memory(std::span<std::byte> piece) {
  const MutexLock lock(mutex_);
  if (aborted_ || registered_.contains(piece.data())) return;
  void* handle = nullptr;
  require(ncclCommRegister(handle_, piece.data(), piece.size(), &handle), "ncclCommRegister", handle_);
  registered_.emplace(piece.data(), handle);
}

void Communicator::call(std::string_view name, const std::function<void(ncclComm_t)>& body) {
  {
    const MutexLock lock(mutex_);
    if (!aborted_) {
      require(ncclGroupStart(), "ncclGroupStart");
      try {
        body(handle_);
      } catch (...) {
        ncclGroupEnd();
        throw;
      }
      ncclGroupEnd();  // `settle` reads the same result from the state
    }
  }
  settle(name);
}

std::optional<std::string> Communicator::failure() {
  const ncclResult_t result = state();
  if (!failed(result)) return std::nullopt;
  return ncclGetErrorString(result);
}

void Communicator::abort(std::span<Communicator* const> communicators) {
  for (Communicator* const each : communicators) each->mutex_.lock();
  ncclGroupStart();
  for (Communicator* const each : communicators)
    if (each->handle_ != nullptr && !std::exchange(each->aborted_, true)) ncclCommAbort(each->handle_);
  ncclGroupEnd();
  for (Communicator* const each : communicators) each->mutex_.unlock();
}

}  // namespace psring::ring::cuda
