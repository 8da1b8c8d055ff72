#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#include <psring/common/base/error.h>
#include <psring/common/base/events.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/device/cuda/launch.h>
#include <psring/common/device/cuda/launches.h>
#include <psring/common/device/cuda/marks.h>
#include <psring/common/device/cuda/pool.h>
#include <psring/common/device/cuda/products.h>

namespace psring::cuda {
namespace {

/// Throws if a launch failed.
void launched(cudaError_t error, const char* kernel) {
  if (error == kNoKernel) fail(ErrorKind::bug, "{}: no kernel for such types or sizes", kernel);
  check_call(error, kernel);
}

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

/// Scratch memory that kernels use during a call, as large as the largest request so far.
class Scratch {
 public:
  ~Scratch() { cudaFree(memory_); }

  float* floats() const { return static_cast<float*>(memory_); }
  /// REQUIRES: no kernel uses the memory.
  void reserve(std::size_t bytes) {
    check_call(cudaFree(std::exchange(memory_, nullptr)), "cudaFree");
    bytes_ = 0;
    check_call(cudaMalloc(&memory_, bytes), "cudaMalloc");
    bytes_ = bytes;
  }
  std::size_t size_bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

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
  bool stalled = false;
  Event begin{cudaEventDefault};
  Event end{cudaEventDefault};
};

/// A position in the queue, and the time at which the device reached it.
struct Anchor {
  Event place{cudaEventDefault};
  Moment at;
};

class CudaDevice final : public Device, public TensorKernels {
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
    launches_ = std::make_unique<Launches>(*stream_);
    queue_ = {*stream_, static_cast<unsigned>(properties.multiProcessorCount)};
    free_at_first_ = memory().free_bytes;
  }

  ~CudaDevice() override {
    cudaStreamSynchronize(queue_.stream);  // no caller waits for pending kernels any more
    cudaFree(workspace_);
    if (ledger_ != nullptr) ledger_->release(Category::activations, own_bytes_);
  }

  std::string name() const override { return name_; }
  /// Returns the queue after launching all pending kernels.
  const Queue& queue() {
    launches_->flush();
    return queue_;
  }
  Pool& pool() { return pool_; }

  std::byte* allocate(std::size_t bytes, Category category) override {
    launches_->flush();  // before memory that they use could be freed
    std::byte* memory = pool_.allocate(bytes, kind_of(category));
    if (memory == nullptr) {
      check_call(cudaStreamSynchronize(queue_.stream), "cudaStreamSynchronize");
      launches_->forget();  // graphs hold memory, too
      memory = pool_.allocate(bytes, kind_of(category));
    }
    if (memory == nullptr) {
      const MemoryUse use = this->memory();
      fail(ErrorKind::data, "{}: {}: no room for {} MiB, {} of {} MiB are free", name_,
           pool_.source(bytes, kind_of(category)).name, bytes >> 20, use.free_bytes >> 20, use.total_bytes >> 20);
    }
    check_call(cudaMemsetAsync(memory, 0, bytes, queue_.stream), "cudaMemsetAsync");
    return memory;
  }
  void free(std::byte* memory) noexcept override { pool_.free(memory); }
  MemoryUse memory() const override {
    MemoryUse use;
    check_call(cudaMemGetInfo(&use.free_bytes, &use.total_bytes), "cudaMemGetInfo");
    if (free_at_first_ > use.free_bytes) use.held_bytes = free_at_first_ - use.free_bytes;
    return use;
  }
  void book(MemoryLedger& ledger) override {
    check(ledger_ == nullptr, "a device with two ledgers");
    ledger_ = &ledger;
    ledger.book(Category::activations, own_bytes_);
  }

  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    check_call(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    std::memset(memory, 0, bytes);
    return {static_cast<std::byte*>(memory), [stream = queue_.stream](std::byte* at) {
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
    return std::make_unique<CudaCopyQueue>([this] { return queue().stream; });
  }
  void copy_bytes(const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0) check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue().stream), "cudaMemcpyAsync");
  }

  Mark mark() override { return marks_.record(queue().stream); }
  void wait(Mark mark) override {
    launches_->flush();  // the device works while the host waits
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
    anchor_.emplace().place.record(queue_.stream);
    anchor_->place.wait();
    anchor_->at = events.now();
  }
  void finish() override {
    check_call(cudaStreamSynchronize(queue().stream), "cudaStreamSynchronize");
    stalled();
  }
  void use_graphs(bool use) override { launches_->use_graphs(use); }
  std::size_t graphs_launched() const override { return launches_->graphs_launched(); }
  TensorKernels& kernels() override { return *this; }

  void copy(ConstElements from, Elements to) override {
    if (from.empty()) return;
    if (from.processor() == this && to.processor() == this) {
      if (from.type() != to.type()) return call("convert", &convert, from, to);
      return copy_bytes(from.data(), to.data(), from.size_bytes());
    }
    check(from.type() == to.type(), "{} of the host into {} of a device, or back", name_of(from.type()),
          name_of(to.type()));
    copy_bytes(from.data(), to.data(), from.size_bytes());
    check_call(cudaStreamSynchronize(queue().stream), "cudaStreamSynchronize");
  }
  void multiply(Elements values, float factor) override { call("multiply", &cuda::multiply, values, factor); }
  void add(Elements sum, ConstElements values) override { call("add", &cuda::add, sum, values); }
  void subtract(Elements from, ConstElements values) override { call("subtract", &cuda::subtract, from, values); }
  void round(DType type, Elements values) override {
    if (type != values.type()) call("round", &round_values, type, values);
  }
  void clear(Elements values) override {
    if (!values.empty()) call("cudaMemsetAsync", &set_zero, values);
  }

  void product(const Product& product) override {
    if (workspace_ == nullptr) {
      check_call(cudaMalloc(&workspace_, Products::kWorkspaceBytes), "cudaMalloc");
      book_own(Products::kWorkspaceBytes);
    }
    if (!products_) products_ = std::make_unique<Products>();
    CallKey key;
    key.add(product);
    launches_->add(std::move(key), [this, product] {
      if (!products_->run(product, workspace_, queue_.stream)) return;
      Product rest = product;
      rest.added = {};
      launched(finish_product(queue_, {product.shape.m, product.shape.n}, rest), "finish_product");
    });
  }

  void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved, Elements y,
                  bool again) override {
    call("layer_norm", &cuda::layer_norm, shape, x, weight, bias, saved, y, again);
  }
  void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved, ConstElements dy,
                           ConstElements residual, Elements dx, const NormGradients& gradients) override {
    if (!gradients.weight.empty())
      call("layer_norm_parameters", &layer_norm_parameters, shape, x, saved, dy, gradients,
           scratch(column_scratch(shape)));
    if (!dx.empty()) call("layer_norm_inputs", &layer_norm_inputs, shape, x, weight, saved, dy, residual, dx);
  }

  void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) override {
    call("attention", &cuda::attention, shape, qkv, out, log_sums);
  }
  void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out, const float* log_sums,
                          ConstElements d_out, Elements d_qkv) override {
    call("attention_backward", &cuda::attention_backward, shape, qkv, out, log_sums, d_out, d_qkv,
         scratch(shape.head_rows()));
  }

  void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens, ConstElements places,
                 Elements y) override {
    call("embedding", &cuda::embedding, shape, context, ids, tokens, places, y);
  }
  void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy, Elements d_tokens,
                          float tokens_beta, Elements d_places, float places_beta) override {
    if (tokens_beta == 0) clear(d_tokens);
    call("embedding_tokens", &embedding_tokens, shape, tokens, dy, d_tokens);
    call("embedding_places", &embedding_places, shape, context, dy, d_places, places_beta);
  }

  void column_sums(Rows shape, ConstElements dy, float beta, Elements into) override {
    call("column_sums", &cuda::column_sums, shape, dy, beta, into, scratch(column_scratch(shape)));
  }
  void slope(Slope slope, ConstElements value, ConstElements dy, Elements dx) override {
    call("slope", &cuda::slope, slope, value, dy, dx);
  }
  void gelu(ConstElements x, Elements y) override { call("gelu", &cuda::gelu, x, y); }

  void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) override {
    call("loss", &cuda::loss, shape, targets, scale, y, sums, scratch(2 * shape.rows));
  }

 private:
  bool is_shown() const override { return events_ != nullptr && events_->detailed(); }
  void begin_stretch(std::string name, bool stalls) override {
    stalled();  // removes stretches that are over
    stretches_.push_back({.name = std::move(name), .stalled = stalls});
    stretches_.back().begin.record(queue().stream);
  }
  void end_stretch() override { stretches_.back().end.record(queue().stream); }
  void drop_stretch() noexcept override { stretches_.pop_back(); }
  /// Computes times relative to the previous stretch, because events measure long intervals less exactly.
  void account(Timed& stretch) {
    const Nanoseconds took = stretch.end.since(stretch.begin);
    if (stretch.stalled) stalled_ += took;
    if (!anchor_) return;
    anchor_->at += stretch.begin.since(anchor_->place);
    events_->detail(DeviceWork{std::move(stretch.name)}, anchor_->at, took);
    anchor_->place = std::move(stretch.begin);
  }

  /// Queues a kernel of launch.h. `arguments`: those after the queue.
  template <class... Parameters, class... Arguments>
  void call(const char* name, cudaError_t (*kernel)(const Queue&, Parameters...), const Arguments&... arguments) {
    const std::tuple<std::decay_t<Parameters>...> values(arguments...);
    CallKey key;
    std::apply([&](const auto&... each) { key.add(kernel, each...); }, values);
    launches_->add(std::move(key), [this, name, kernel, values] {
      launched(std::apply([&](const auto&... each) { return kernel(queue_, each...); }, values), name);
    });
  }
  static cudaError_t set_zero(const Queue& queue, Elements values) {
    return cudaMemsetAsync(values.data(), 0, values.size_bytes(), queue.stream);
  }

  float* scratch(std::size_t floats) {
    const std::size_t bytes = floats * sizeof(float);
    const std::size_t before = scratch_.size_bytes();
    if (bytes > before) {
      check_call(cudaStreamSynchronize(queue().stream), "cudaStreamSynchronize");
      scratch_.reserve(bytes);
      book_own(bytes - before);
    }
    return scratch_.floats();
  }
  void book_own(std::size_t bytes) {
    own_bytes_ += bytes;
    if (ledger_ != nullptr && bytes > 0) ledger_->book(Category::activations, bytes);
  }

  std::string name_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Launches> launches_;
  Queue queue_;  ///< without the pending kernels
  Pool pool_;
  Marks marks_;
  std::function<void()> check_after_wait_ = [] {};
  std::deque<Timed> stretches_;  ///< in progress, or not yet accounted
  Nanoseconds stalled_{0};
  Events* events_ = nullptr;      ///< null: stretches are not reported
  std::optional<Anchor> anchor_;  ///< empty if stretches are not reported
  Scratch scratch_;
  void* workspace_ = nullptr;
  std::size_t own_bytes_ = 0;  ///< size of scratch and workspace
  MemoryLedger* ledger_ = nullptr;
  std::size_t free_at_first_ = 0;
  std::unique_ptr<Products> products_;  ///< empty before the first product
};

}  // namespace

const Queue& queue_of(Device& device) { return static_cast<CudaDevice&>(device).queue(); }
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
