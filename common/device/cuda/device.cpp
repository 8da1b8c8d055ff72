#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <psring/common/base/events/events.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/device/cuda/kernel_queue.h>
#include <psring/common/device/cuda/pool.h>

namespace psring::cuda {
namespace {

/// Numbered positions in a queue. Events are reused once the queue has reached them.
class Marks {
 public:
  using Mark = std::uint64_t;

  Mark record(cudaStream_t stream) {
    Event event = take();
    event.record(stream);
    recorded_.emplace(++last_, std::move(event));
    return last_;
  }

  // A mark without an event was reached: its event has been reused.
  void wait(Mark mark) const {
    const auto at = recorded_.find(mark);
    if (at != recorded_.end()) at->second.wait();
  }
  bool reached(Mark mark) const {
    const auto at = recorded_.find(mark);
    return at == recorded_.end() || at->second.reached();
  }
  void hold(Mark mark, cudaStream_t stream) const {
    const auto at = recorded_.find(mark);
    if (at != recorded_.end()) at->second.hold(stream);
  }

 private:
  Event take() {
    if (recorded_.empty() || !recorded_.begin()->second.reached()) return Event();
    return std::move(recorded_.extract(recorded_.begin()).mapped());
  }

  std::map<Mark, Event> recorded_;
  Mark last_ = 0;
};

/// Categories that workers exchange: values, gradients, and buffers that are sent.
Pool::Kind kind_of(Category category) {
  switch (category) {
    case Category::parameters:
    case Category::gradients:
    case Category::communication:
      return Pool::Kind::shared;
    default:
      return Pool::Kind::own;
  }
}

class CudaCopyQueue final : public CopyQueue {
 public:
  /// `device`: returns the device's queue after launching its pending kernels.
  explicit CudaCopyQueue(std::function<cudaStream_t()> device) : device_(std::move(device)) {}
  /// Waits for the last copy before the memory is freed.
  ~CudaCopyQueue() override { cudaStreamSynchronize(stream_); }

  void begin_after_device() override {
    Event before;
    before.record(device_());
    before.hold(stream_);
  }
  void hold_device(Mark mark) override { marks_.hold(mark, device_()); }
  void copy(const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0) check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
  }
  Mark mark() override { return marks_.record(stream_); }
  bool reached(Mark mark) override { return marks_.reached(mark); }

 private:
  const std::function<cudaStream_t()> device_;
  Stream stream_;
  Marks marks_;
};

/// A timed part of the queue.
struct Timed {
  std::string name;
  std::uint64_t step = 0;
  bool stalled = false;
  Event begin{cudaEventDefault};
  Event end{cudaEventDefault};
};

/// A position in the queue, and the time at which the device reached it.
struct Anchor {
  Event place{cudaEventDefault};
  Moment at;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::size_t index) {
    const std::size_t count = devices();
    if (index >= count)
      fail(ErrorKind::usage, "--device cuda: this host has no GPU {}: it has {}, numbered from 0", index, count);
    check_call(cudaSetDevice(static_cast<int>(index)), "cudaSetDevice");
    cudaDeviceProp properties{};
    check_call(cudaGetDeviceProperties(&properties, static_cast<int>(index)), "cudaGetDeviceProperties");
    name_ = fmt::format("{} (GPU {})", properties.name, index);
    if (properties.major < 8)
      fail(ErrorKind::usage, "--device cuda: {} has compute capability {}.{}; at least 8.0 is needed", name_,
           properties.major, properties.minor);
    stream_ = std::make_unique<Stream>();
    kernels_.emplace(*stream_, static_cast<unsigned>(properties.multiProcessorCount), pool_);
    free_at_first_ = memory().free_bytes;
  }

  std::string name() const override { return name_; }
  KernelQueue& kernels() { return *kernels_; }
  Pool& pool() { return pool_; }

  std::byte* allocate(std::size_t bytes, Category category) override {
    std::byte* const memory = kernels_->allocate(bytes, kind_of(category));
    if (memory == nullptr) {
      const MemoryUse use = this->memory();
      fail(ErrorKind::data, "{}: {}: no room for {} MiB, {} of {} MiB are free", name_,
           pool_.source(bytes, kind_of(category)).name, bytes >> 20, use.free_bytes >> 20, use.total_bytes >> 20);
    }
    check_call(cudaMemsetAsync(memory, 0, bytes, kernels_->stream()), "cudaMemsetAsync");
    return memory;
  }
  void free(std::byte* memory) noexcept override { pool_.free(memory); }
  MemoryUse memory() const override {
    MemoryUse use;
    check_call(cudaMemGetInfo(&use.free_bytes, &use.total_bytes), "cudaMemGetInfo");
    if (free_at_first_ > use.free_bytes) use.held_bytes = free_at_first_ - use.free_bytes;
    return use;
  }
  void book(MemoryLedger& ledger) override { kernels_->book(ledger); }

  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    check_call(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    std::memset(memory, 0, bytes);
    return {static_cast<std::byte*>(memory), [stream = kernels_->stream()](std::byte* at) {
              cudaStreamSynchronize(stream);  // copies may still use the memory after an error
              cudaFreeHost(at);
            }};
  }
  std::shared_ptr<void> pin(std::span<std::byte> memory) override {
    if (cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault) != cudaSuccess) {
      cudaGetLastError();  // clears the error, so that the next call does not return it
      return nullptr;
    }
    return {memory.data(), [](void* at) { cudaHostUnregister(at); }};
  }
  std::unique_ptr<CopyQueue> make_copy_queue() override {
    return std::make_unique<CudaCopyQueue>([this] { return kernels_->flushed().stream; });
  }
  void copy_bytes(const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0)
      check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, kernels_->flushed().stream), "cudaMemcpyAsync");
  }

  Mark mark() override { return marks_.record(kernels_->flushed().stream); }
  void wait(Mark mark) override {
    kernels_->flushed();  // the device works while the host waits
    marks_.wait(mark);
    check_after_wait_();
  }
  void check_after_wait(std::function<void()> check) override { check_after_wait_ = std::move(check); }
  Nanoseconds stalled() override {
    for (; !stretches_.empty() && stretches_.front().end.reached(); stretches_.pop_front()) account(stretches_.front());
    return stalled_;
  }
  void report_to(Events& events) override {
    events_ = &events;
    finish();
    anchor_.emplace().place.record(kernels_->stream());
    anchor_->place.wait();
    anchor_->at = events.now();
  }
  void finish() override {
    check_call(cudaStreamSynchronize(kernels_->flushed().stream), "cudaStreamSynchronize");
    stalled();
  }
  void use_graphs(bool use) override { kernels_->launches().use_graphs(use); }
  std::size_t graphs_launched() const override { return kernels_->launches().graphs_launched(); }

  void copy(ConstElements from, Elements to) override {
    if (from.empty()) return;
    if (from.processor() == this && to.processor() == this) {
      if (from.type() != to.type()) return kernels_->call("convert", &convert, from, to);
      return copy_bytes(from.data(), to.data(), from.size_bytes());
    }
    check(from.type() == to.type(), "{} of the host into {} of a device, or back", name_of(from.type()),
          name_of(to.type()));
    copy_bytes(from.data(), to.data(), from.size_bytes());
    check_call(cudaStreamSynchronize(kernels_->flushed().stream), "cudaStreamSynchronize");
  }
  void multiply(Elements values, float factor) override { kernels_->call("multiply", &cuda::multiply, values, factor); }
  void add(Elements sum, ConstElements values) override { kernels_->call("add", &cuda::add, sum, values); }
  void subtract(Elements from, ConstElements values) override {
    kernels_->call("subtract", &cuda::subtract, from, values);
  }
  void round(DType type, Elements values) override {
    if (type != values.type()) kernels_->call("round", &round_values, type, values);
  }
  void clear(Elements values) override {
    if (!values.empty()) kernels_->call("cudaMemsetAsync", &set_zero, values);
  }

 private:
  bool is_shown() const override { return events_ != nullptr && events_->detailed(); }
  void begin_stretch(std::string name, bool stalls) override {
    stalled();  // removes stretches that are over
    const std::uint64_t step = events_ != nullptr ? events_->step() : 0;
    stretches_.push_back({.name = std::move(name), .step = step, .stalled = stalls});
    stretches_.back().begin.record(kernels_->flushed().stream);
  }
  void end_stretch() override { stretches_.back().end.record(kernels_->flushed().stream); }
  void drop_stretch() noexcept override { stretches_.pop_back(); }
  /// Computes times relative to the previous stretch, because events measure long intervals less exactly.
  void account(Timed& stretch) {
    const Nanoseconds took = stretch.end.since(stretch.begin);
    if (stretch.stalled) stalled_ += took;
    if (!anchor_) return;
    anchor_->at += stretch.begin.since(anchor_->place);
    events_->detail(DeviceWork{std::move(stretch.name)}, stretch.step, anchor_->at, took);
    anchor_->place = std::move(stretch.begin);
  }

  static cudaError_t set_zero(const Queue& queue, Elements values) {
    return cudaMemsetAsync(values.data(), 0, values.size_bytes(), queue.stream);
  }

  std::string name_;
  std::unique_ptr<Stream> stream_;
  Pool pool_;
  std::optional<KernelQueue> kernels_;  ///< set by the constructor
  Marks marks_;
  std::function<void()> check_after_wait_ = [] {};
  std::deque<Timed> stretches_;  ///< in progress, or not yet accounted
  Nanoseconds stalled_{0};
  Events* events_ = nullptr;      ///< null: stretches are not reported
  std::optional<Anchor> anchor_;  ///< empty if stretches are not reported
  std::size_t free_at_first_ = 0;
};

}  // namespace

KernelQueue& kernel_queue_of(Device& device) { return static_cast<CudaDevice&>(device).kernels(); }
const Queue& queue_of(Device& device) { return kernel_queue_of(device).flushed(); }
Pool& pool_of(Device& device) { return static_cast<CudaDevice&>(device).pool(); }

std::size_t devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    fail(ErrorKind::usage, "--device cuda: no GPU: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  return static_cast<std::size_t>(count);
}

std::unique_ptr<Device> make_device(std::size_t index) { return std::make_unique<CudaDevice>(index); }

}  // namespace psring::cuda
