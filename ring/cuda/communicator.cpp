#include <chrono>
#include <thread>
#include <utility>

#include <psring/common/base/error.h>
#include <psring/ring/cuda/communicator.h>

namespace psring::ring::cuda {
namespace {

constexpr std::chrono::seconds kPatience{2};  // at the end, with ranks that do not come to it
constexpr std::chrono::microseconds kPause{20};

[[noreturn]] void fail_call(ncclResult_t result, std::string_view name, ncclComm_t handle) {
  const char* const more = handle == nullptr ? "" : ncclGetLastError(handle);
  const bool of_peer = result == ncclRemoteError || result == ncclSystemError;
  fail(of_peer ? ErrorKind::peer_lost : ErrorKind::bug, "NCCL: {}: {}{}{}", name, ncclGetErrorString(result),
       *more == '\0' ? "" : ": ", more);
}

ncclUniqueId agree_on_id(ProcessGroup& bootstrap) {
  ncclUniqueId id{};
  if (bootstrap.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) fail_call(result, "ncclGetUniqueId", nullptr);
  }
  bootstrap.broadcast({reinterpret_cast<std::byte*>(&id), sizeof id, {DType::u8}}, 0).wait();
  return id;
}

}  // namespace

Communicator::Communicator(ProcessGroup& bootstrap, const std::function<void()>& check) {
  const ncclUniqueId id = agree_on_id(bootstrap);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&handle_, static_cast<int>(bootstrap.size()), id,
                                                     static_cast<int>(bootstrap.rank()), &config);
  try {
    require(result, "ncclCommInitRankConfig");
    settle("ncclCommInitRankConfig", check);
  } catch (...) {
    abort();
    throw;
  }
}

Communicator::~Communicator() {
  if (aborted_ || handle_ == nullptr) return;
  for (void* const handle : memory_) ncclCommDeregister(handle_, handle);
  ncclResult_t result = ncclCommFinalize(handle_);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (result == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPause);
    result = state();
  }
  if (result == ncclSuccess)
    ncclCommDestroy(handle_);
  else
    abort();
}

void Communicator::require(ncclResult_t result, std::string_view name) {
  if (result != ncclSuccess && result != ncclInProgress) fail_call(result, name, handle_);
}

ncclResult_t Communicator::state() {
  const std::scoped_lock lock(mutex_);
  if (aborted_) return ncclRemoteError;
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &result);
  return asked == ncclSuccess ? result : asked;
}

void Communicator::settle(std::string_view name, const std::function<void()>& check) {
  for (;;) {
    const ncclResult_t result = state();
    if (result == ncclSuccess) return;
    check();  // who aborted it knows why
    require(result, name);
    std::this_thread::sleep_for(kPause);
  }
}

void Communicator::call(std::string_view name, const std::function<void(ncclComm_t)>& body,
                        const std::function<void()>& check) {
  {
    const std::scoped_lock lock(mutex_);
    if (!aborted_) {
      require(ncclGroupStart(), "ncclGroupStart");
      try {
        body(handle_);
      } catch (...) {
        ncclGroupEnd();
        throw;
      }
      require(ncclGroupEnd(), name);
    }
  }
  settle(name, check);
}

void Communicator::add_memory(std::span<std::byte> memory) {
  const std::scoped_lock lock(mutex_);
  if (aborted_) return;
  void* handle = nullptr;
  require(ncclCommRegister(handle_, memory.data(), memory.size(), &handle), "ncclCommRegister");
  if (handle != nullptr) memory_.push_back(handle);
}

std::optional<std::string> Communicator::failure() {
  const ncclResult_t result = state();
  if (result == ncclSuccess || result == ncclInProgress) return std::nullopt;
  return ncclGetErrorString(result);
}

void Communicator::abort() {
  const std::scoped_lock lock(mutex_);
  if (handle_ != nullptr && !std::exchange(aborted_, true)) ncclCommAbort(handle_);
}

}  // namespace psring::ring::cuda
