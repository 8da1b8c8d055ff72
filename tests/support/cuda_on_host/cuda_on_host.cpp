#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace cuda_on_host {

void die(const char* what) {
  std::fprintf(stderr, "cuda_on_host: %s\n", what);
  std::abort();
}

namespace {

// ------------------------------------------------------------------------------------------------ device memory

/// One range of addresses, which can be touched as long as somebody is inside.
class DeviceMemory {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 30;
  static constexpr std::size_t kAlignment = 256;

  DeviceMemory() {
    base_ =
        static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) die("no addresses for device memory");
  }

  void* allocate(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;  // and a gap
    std::size_t begin = 0;
    for (const auto& [offset, taken] : taken_) {
      if (offset - begin >= size) break;
      begin = offset + taken;
    }
    if (begin + size > kBytes) return nullptr;
    taken_.emplace(begin, size);
    enter_locked();
    open_to(begin + size);
    std::memset(base_ + begin, 0xff, size);  // NaN, in every type
    leave_locked();
    return base_ + begin;
  }
  bool free(void* memory) {
    const std::scoped_lock lock(mutex_);
    return taken_.erase(static_cast<std::size_t>(static_cast<std::byte*>(memory) - base_)) == 1;
  }
  std::size_t free_bytes() {
    const std::scoped_lock lock(mutex_);
    std::size_t bytes = kBytes;
    for (const auto& [offset, taken] : taken_) bytes -= taken;
    return bytes;
  }
  void enter() {
    const std::scoped_lock lock(mutex_);
    enter_locked();
  }
  void leave() {
    const std::scoped_lock lock(mutex_);
    leave_locked();
  }

 private:
  /// Opens what is allocated. The rest stays closed, which is quicker than to open and close it each time.
  void enter_locked() {
    if (inside_++ == 0 && !taken_.empty()) open_to(taken_.rbegin()->first + taken_.rbegin()->second);
  }
  void leave_locked() {
    if (--inside_ > 0 || open_ == 0) return;
    ::mprotect(base_, open_, PROT_NONE);
    open_ = 0;
  }
  void open_to(std::size_t end) {
    const std::size_t pages = (end + kPage - 1) / kPage * kPage;
    if (pages <= open_) return;
    ::mprotect(base_, pages, PROT_READ | PROT_WRITE);
    open_ = pages;
  }

  static constexpr std::size_t kPage = 4096;
  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t inside_ = 0;
  std::size_t open_ = 0;  ///< bytes from the base that can be touched
  std::map<std::size_t, std::size_t> taken_;
};

DeviceMemory& device() {
  static auto* const memory = new DeviceMemory;  // as long as the process: whoever frees last may be static, too
  return *memory;
}

struct Inside {
  Inside() { device().enter(); }
  ~Inside() { device().leave(); }
};

// ------------------------------------------------------------------------------------------------ threads of a block

constexpr std::size_t kStack = 128 << 10;
constexpr std::size_t kMostShared = 227 << 10;

struct Barrier {
  unsigned expected = 0;
  unsigned arrived = 0;
  std::uint64_t passed = 0;

  /// A thread that ends is not waited for any more.
  void without_one() {
    --expected;
    if (expected > 0 && arrived == expected) pass();
  }
  void pass() {
    arrived = 0;
    ++passed;
  }
};

/// A block's threads as contexts of one host thread, which go on in turn.
class Block {
 public:
  void run(dim3 block, const std::function<void()>& body) {
    const unsigned threads = block.x * block.y * block.z;
    if (threads == 0 || threads > 1024) die("a block of more than 1024 threads, or none");
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    body_ = &body;
    const unsigned warps = (threads + kWarp - 1) / kWarp;
    all_ = {threads, 0, 0};
    warps_.assign(warps, {});
    lane_values_.assign(warps * kWarp, 0);
    for (unsigned w = 0; w < warps; ++w) warps_[w].expected = std::min(kWarp, threads - w * kWarp);
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& fiber = *fibers_[t];
      fiber.index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
      fiber.barrier = nullptr;
      fiber.done = false;
    }
    for (unsigned left = threads; left > 0;) {
      bool went_on = false;
      for (unsigned t = 0; t < threads; ++t) {
        Fiber& fiber = *fibers_[t];
        if (fiber.done || (fiber.barrier != nullptr && fiber.barrier->passed == fiber.waits_for)) continue;
        went_on = true;
        resume(t);
        if (!fiber.done) continue;
        --left;
        all_.without_one();
        warps_[t / kWarp].without_one();
      }
      if (!went_on) die("threads of a block wait for each other");
    }
  }

  void wait(Barrier& barrier) {
    Fiber& fiber = *fibers_[running_];
    fiber.barrier = &barrier;
    fiber.waits_for = barrier.passed;
    if (++barrier.arrived == barrier.expected) barrier.pass();
    while (barrier.passed == fiber.waits_for) pause(fiber);
    fiber.barrier = nullptr;
  }
  Barrier& all() { return all_; }
  Barrier& warp() { return warps_[running_ / kWarp]; }
  unsigned running() const { return running_; }
  std::uint64_t* lane_values() { return &lane_values_[running_ / kWarp * kWarp]; }

 private:
  struct Fiber {
    uint3 index{};
    bool begun = false;
    bool done = false;
    Barrier* barrier = nullptr;
    std::uint64_t waits_for = 0;
    ucontext_t context{};
    jmp_buf at{};
    std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  };

  void resume(unsigned t) {
    Fiber& fiber = *fibers_[t];
    running_ = t;
    threadIdx = fiber.index;
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack.get(), 0, kStack};
    fiber.context.uc_link = nullptr;
    const auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::enter), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    setcontext(&fiber.context);
  }
  void pause(Fiber& fiber) {
    if (_setjmp(fiber.at) == 0) _longjmp(scheduler_, 1);
  }
  static void enter(unsigned low, unsigned high) {
    auto* self = reinterpret_cast<Block*>(std::uintptr_t{low} | std::uintptr_t{high} << 32);
    for (;;) {
      Fiber& fiber = *self->fibers_[self->running_];
      (*self->body_)();
      fiber.done = true;
      self->pause(fiber);
    }
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  const std::function<void()>* body_ = nullptr;
  Barrier all_;
  std::vector<Barrier> warps_;
  std::vector<std::uint64_t> lane_values_;
  unsigned running_ = 0;
  jmp_buf scheduler_{};
};

thread_local Block block;
thread_local std::vector<std::uint64_t> shared;

}  // namespace

void block_barrier() { block.wait(block.all()); }
void warp_barrier() { block.wait(block.warp()); }
unsigned lane() { return block.running() % kWarp; }
void* dynamic_shared() { return shared.data(); }

const std::uint64_t* exchange(std::uint64_t value) {
  std::uint64_t* const lane_values = block.lane_values();
  lane_values[lane()] = value;
  warp_barrier();
  return lane_values;
}

namespace {

constexpr std::size_t kSharedUnlessAllowed = 48 << 10;
std::mutex allowed_mutex;
std::map<const void*, std::size_t> allowed;

}  // namespace

bool allow_shared(const void* kernel, std::size_t bytes) {
  const std::scoped_lock lock(allowed_mutex);
  allowed[kernel] = bytes;
  return bytes <= kMostShared;
}
bool shared_is_allowed(const void* kernel, std::size_t bytes) {
  const std::scoped_lock lock(allowed_mutex);
  const auto at = allowed.find(kernel);
  return bytes <= (at == allowed.end() ? kSharedUnlessAllowed : at->second);
}

void run(dim3 grid, dim3 of_block, std::size_t shared_bytes, const std::function<void()>& thread) {
  if (shared_bytes > kMostShared) die("more shared memory than a block has");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) die("a grid without blocks");
  if (grid.y > 65535 || grid.z > 65535) die("a grid whose y or z is above 65535");
  shared.assign(shared_bytes / sizeof(std::uint64_t) + 2, ~std::uint64_t{0});
  gridDim = grid;
  blockDim = of_block;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        block.run(of_block, thread);
      }
}

}  // namespace cuda_on_host

// ------------------------------------------------------------------------------------------------ streams and events

/// The work that was queued while a stream was captured.
struct cudaOnHostGraph {
  std::vector<std::function<void()>> work;
};

struct cudaOnHostStream {
 public:
  cudaOnHostStream() : thread_([this] { run(); }) {}
  ~cudaOnHostStream() {
    {
      const std::scoped_lock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  void queue(std::function<void()> work) {
    if (capture != nullptr) return capture->work.push_back(std::move(work));
    {
      const std::scoped_lock lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
  }
  bool idle() {
    const std::scoped_lock lock(mutex_);
    return queue_.empty();
  }
  const std::thread::id owner = std::this_thread::get_id();
  std::unique_ptr<cudaOnHostGraph> capture;  ///< the owner's alone

 private:
  /// Runs the queue. A piece of work stays in the queue until it is done. Device memory is open until the queue is
  /// empty.
  void run() {
    std::uint32_t random = 1;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
      if (queue_.empty()) return;
      {
        const cuda_on_host::Inside inside;
        for (; !queue_.empty(); queue_.pop_front()) {
          const auto& work = queue_.front();
          lock.unlock();
          random = random * 1664525 + 1013904223;
          if (random >> 27 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
          work();
          lock.lock();
        }
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool closed_ = false;
  std::jthread thread_;
};

/// Shared with what is queued, which may outlive the handle.
struct cudaOnHostEvent {
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0;
    std::uint64_t reached = 0;
    std::chrono::steady_clock::time_point when;

    void wait(std::uint64_t for_record) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return reached >= for_record; });
    }
    std::uint64_t newest() {
      const std::scoped_lock lock(mutex);
      return recorded;
    }
  };
  const std::shared_ptr<State> state = std::make_shared<State>();
};

namespace {

std::mutex streams_mutex;
std::vector<cudaOnHostStream*> streams;

/// The calling thread's, as far as CUDA forbids this while one of its streams is captured.
void forbid_in_capture(const char* call) {
  const std::scoped_lock lock(streams_mutex);
  for (const cudaOnHostStream* stream : streams)
    if (stream->owner == std::this_thread::get_id() && stream->capture != nullptr) cuda_on_host::die(call);
}

}  // namespace

void cuda_on_host::queue(cudaOnHostStream* stream, std::function<void()> work) {
  queue_blocking(stream, [work = std::move(work)] { inside(work); });
}
void cuda_on_host::queue_blocking(cudaOnHostStream* stream, std::function<void()> work) {
  if (stream == nullptr) die("work in the null stream");
  stream->queue(std::move(work));
}
void cuda_on_host::inside(const std::function<void()>& work) {
  const Inside opened;
  work();
}

const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess         ? "cudaSuccess"
         : error == cudaErrorNoDevice ? "cudaErrorNoDevice"
                                      : "cudaErrorMemoryAllocation";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "no error";
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  const char* const gpus = std::getenv("PSRING_TEST_GPUS");
  *count = gpus == nullptr ? 1 : std::atoi(gpus);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"CUDA on the host", cuda_on_host::DeviceMemory::kBytes, cuda_on_host::kMostShared, 9, 0, 2, 1 << 20};
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  forbid_in_capture("cudaMalloc while a stream is captured");
  *memory = cuda_on_host::device().allocate(bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  forbid_in_capture("cudaFree while a stream is captured");
  std::vector<cudaOnHostStream*> own;
  {
    const std::scoped_lock lock(streams_mutex);
    for (cudaOnHostStream* stream : streams)
      if (stream->owner == std::this_thread::get_id()) own.push_back(stream);
  }
  for (cudaOnHostStream* stream : own) stream->wait();
  if (memory != nullptr && !cuda_on_host::device().free(memory)) cuda_on_host::die("cudaFree of what is not allocated");
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = cuda_on_host::device().free_bytes();
  *total = cuda_on_host::DeviceMemory::kBytes;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, std::size_t bytes, unsigned) {
  return bytes > 0 ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  cuda_on_host::queue(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  cuda_on_host::queue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = new cudaOnHostStream;
  const std::scoped_lock lock(streams_mutex);
  streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::scoped_lock lock(streams_mutex);
    std::erase(streams, stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  forbid_in_capture("cudaStreamSynchronize while a stream is captured");
  stream->wait();
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return stream->idle() ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream->queue([state = event->state, record = event->state->newest()] { state->wait(record); });
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->owner != std::this_thread::get_id() || stream->capture != nullptr) return cudaErrorInvalidValue;
  stream->capture = std::make_unique<cudaOnHostGraph>();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (stream->capture == nullptr) return cudaErrorInvalidValue;
  *graph = stream->capture.release();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new cudaOnHostGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& work : executable->work) stream->queue(work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new cudaOnHostEvent;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  forbid_in_capture("cudaEventRecord while a stream is captured");
  std::uint64_t record = 0;
  {
    const std::scoped_lock lock(event->state->mutex);
    record = ++event->state->recorded;
  }
  stream->queue([state = event->state, record] {
    {
      const std::scoped_lock lock(state->mutex);
      state->reached = std::max(state->reached, record);
      state->when = std::chrono::steady_clock::now();
    }
    state->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  event->state->wait(event->state->newest());
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::scoped_lock lock(event->state->mutex);
  return event->state->reached >= event->state->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->state->newest() == 0 || end->state->newest() == 0) return cudaErrorInvalidValue;
  if (cudaEventQuery(begin) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->state->when - begin->state->when).count();
  return cudaSuccess;
}
