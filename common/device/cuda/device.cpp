#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <psring/common/base/error.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/device/cuda/launch.h>
#include <psring/common/device/cuda/marks.h>
#include <psring/common/device/cuda/products.h>

namespace psring::cuda {
namespace {

/// What launches return, as an error of ours.
void launched(cudaError_t error, const char* kernel) {
  if (error == kNoKernel) fail(ErrorKind::bug, "{}: no kernel for such types or sizes", kernel);
  check_call(error, kernel);
}

/// The device's memory. What is freed is kept for who asks for as much: cudaMalloc and cudaFree stop the device.
class Pool {
 public:
  ~Pool() {
    for (const auto& [memory, bytes] : sizes_) cudaFree(memory);
  }

  /// Null where there is no room.
  std::byte* allocate(std::size_t bytes) {
    if (const auto kept = free_.find(bytes); kept != free_.end()) return free_.extract(kept).mapped();
    void* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation && !free_.empty()) {
      cudaGetLastError();  // not an error of the next call
      trim();
      error = cudaMalloc(&memory, bytes);
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_call(error, "cudaMalloc");
    sizes_.emplace(static_cast<std::byte*>(memory), bytes);
    return static_cast<std::byte*>(memory);
  }
  /// What is queued may still be at it: whoever gets it next comes later in the queue.
  void free(std::byte* memory) {
    if (memory != nullptr) free_.emplace(sizes_.at(memory), memory);
  }

 private:
  void trim() {
    for (const auto& [bytes, memory] : free_) {
      cudaFree(memory);
      sizes_.erase(memory);
    }
    free_.clear();
  }

  std::map<std::byte*, std::size_t> sizes_;
  std::multimap<std::size_t, std::byte*> free_;
};

/// Memory that kernels use for the length of a call: as much as the largest has asked for.
class Scratch {
 public:
  ~Scratch() { cudaFree(memory_); }

  float* floats(std::size_t count, cudaStream_t stream) {
    const std::size_t bytes = count * sizeof(float);
    if (bytes > bytes_) {
      check_call(cudaStreamSynchronize(stream), "cudaStreamSynchronize");  // kernels may be at it
      check_call(cudaFree(std::exchange(memory_, nullptr)), "cudaFree");
      bytes_ = 0;
      check_call(cudaMalloc(&memory_, bytes), "cudaMalloc");
      bytes_ = bytes;
    }
    return static_cast<float*>(memory_);
  }
  std::size_t size_bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class CudaCopyQueue final : public CopyQueue {
 public:
  explicit CudaCopyQueue(cudaStream_t device) : device_(device) {}
  /// What is copied ends before the memory goes.
  ~CudaCopyQueue() override { cudaStreamSynchronize(stream_); }

  void begin_after_device() override {
    Event before;
    before.record(device_);
    before.hold(stream_);
  }
  void hold_device(Mark mark) override { marks_.hold(mark, device_); }
  void copy(const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0) check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
  }
  Mark mark() override { return marks_.record(stream_); }
  bool reached(Mark mark) override { return marks_.reached(mark); }

 private:
  const cudaStream_t device_;
  Stream stream_;
  Marks marks_;
};

/// Of the queue, between two places.
struct Stall {
  Event begin{cudaEventDefault};
  Event end{cudaEventDefault};
};

class CudaDevice final : public Device, public TensorKernels {
 public:
  explicit CudaDevice(std::size_t index) {
    const std::size_t count = devices();
    if (index >= count) fail(ErrorKind::usage, "--device cuda: GPU {} of {}", index, count);
    check_call(cudaSetDevice(static_cast<int>(index)), "cudaSetDevice");
    cudaDeviceProp properties{};
    check_call(cudaGetDeviceProperties(&properties, static_cast<int>(index)), "cudaGetDeviceProperties");
    name_ = fmt::format("{} (GPU {})", properties.name, index);
    if (properties.major < 8)
      fail(ErrorKind::usage, "--device cuda: {} has compute capability {}.{}; at least 8.0 is needed", name_,
           properties.major, properties.minor);
    stream_ = std::make_unique<Stream>();
    queue_ = {*stream_, static_cast<unsigned>(properties.multiProcessorCount)};
    free_at_first_ = memory().free_bytes;
  }

  ~CudaDevice() override {
    cudaStreamSynchronize(queue_.stream);
    cudaFree(workspace_);
    if (ledger_ != nullptr) ledger_->release(Category::activations, own_bytes_);
  }

  std::string name() const override { return name_; }
  const Queue& queue() const { return queue_; }

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = pool_.allocate(bytes);
    if (memory == nullptr) {
      const MemoryUse use = this->memory();
      fail(ErrorKind::data, "{}: no room for {} MiB, {} of {} MiB are free", name_, bytes >> 20, use.free_bytes >> 20,
           use.total_bytes >> 20);
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
    return {static_cast<std::byte*>(memory), [](std::byte* at) { cudaFreeHost(at); }};
  }
  std::shared_ptr<void> pin(std::span<std::byte> memory) override {
    check_call(cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault), "cudaHostRegister");
    return {memory.data(), [](void* at) { cudaHostUnregister(at); }};
  }
  std::unique_ptr<CopyQueue> make_copy_queue() override { return std::make_unique<CudaCopyQueue>(queue_.stream); }
  void copy_bytes(const void* from, void* to, std::size_t bytes) override {
    if (bytes > 0) check_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_.stream), "cudaMemcpyAsync");
  }

  Mark mark() override { return marks_.record(queue_.stream); }
  void wait(Mark mark) override {
    marks_.wait(mark);
    check_after_wait_();
  }
  void check_after_wait(std::function<void()> check) override { check_after_wait_ = std::move(check); }
  void stall_begins() override { stalls_.emplace_back().begin.record(queue_.stream); }
  void stall_ends() override { stalls_.back().end.record(queue_.stream); }
  Nanoseconds stalled() override {
    for (; !stalls_.empty() && stalls_.front().end.reached(); stalls_.pop_front())
      stalled_ += stalls_.front().end.since(stalls_.front().begin);
    return stalled_;
  }
  TensorKernels& kernels() override { return *this; }

  void copy(ConstElements from, Elements to) override {
    if (from.empty()) return;
    if (from.processor() == this && to.processor() == this) {
      if (from.type() != to.type()) return launched(convert(queue_, from, to), "convert");
      return copy_bytes(from.data(), to.data(), from.size_bytes());
    }
    check(from.type() == to.type(), "{} of the host into {} of a device, or back", name_of(from.type()),
          name_of(to.type()));
    copy_bytes(from.data(), to.data(), from.size_bytes());
    check_call(cudaStreamSynchronize(queue_.stream), "cudaStreamSynchronize");
  }
  void multiply(Elements values, float factor) override {
    launched(cuda::multiply(queue_, values, factor), "multiply");
  }
  void add(Elements sum, ConstElements values) override { launched(cuda::add(queue_, sum, values), "add"); }
  void round(DType type, Elements values) override {
    if (type != values.type()) launched(round_values(queue_, type, values), "round");
  }
  void clear(Elements values) override {
    if (!values.empty())
      check_call(cudaMemsetAsync(values.data(), 0, values.size_bytes(), queue_.stream), "cudaMemsetAsync");
  }

  void product(const Product& product) override {
    if (workspace_ == nullptr) {
      check_call(cudaMalloc(&workspace_, Products::kWorkspaceBytes), "cudaMalloc");
      book_own(Products::kWorkspaceBytes);
    }
    if (!products_) products_ = std::make_unique<Products>();
    if (!products_->run(product, workspace_, queue_.stream)) return;
    Product rest = product;
    rest.added = {};
    launched(finish_product(queue_, {product.shape.m, product.shape.n}, rest), "finish_product");
  }

  void layer_norm(Rows shape, ConstElements x, ConstElements weight, ConstElements bias, float* saved, Elements y,
                  bool again) override {
    launched(cuda::layer_norm(queue_, shape, x, weight, bias, saved, y, again), "layer_norm");
  }
  void layer_norm_backward(Rows shape, ConstElements x, ConstElements weight, const float* saved, ConstElements dy,
                           ConstElements residual, Elements dx, const NormGradients& gradients) override {
    if (!gradients.weight.empty())
      launched(layer_norm_parameters(queue_, shape, x, saved, dy, gradients, scratch(column_scratch(shape))),
               "layer_norm_parameters");
    if (!dx.empty())
      launched(layer_norm_inputs(queue_, shape, x, weight, saved, dy, residual, dx), "layer_norm_inputs");
  }

  void attention(const AttentionShape& shape, ConstElements qkv, Elements out, float* log_sums) override {
    launched(cuda::attention(queue_, shape, qkv, out, log_sums), "attention");
  }
  void attention_backward(const AttentionShape& shape, ConstElements qkv, ConstElements out, const float* log_sums,
                          ConstElements d_out, Elements d_qkv) override {
    launched(cuda::attention_backward(queue_, shape, qkv, out, log_sums, d_out, d_qkv, scratch(shape.head_rows())),
             "attention_backward");
  }

  void embedding(Rows shape, std::size_t context, const std::int32_t* ids, ConstElements tokens, ConstElements places,
                 Elements y) override {
    launched(cuda::embedding(queue_, shape, context, ids, tokens, places, y), "embedding");
  }
  void embedding_backward(Rows shape, std::size_t context, const TokenRows& tokens, ConstElements dy, Elements d_tokens,
                          float tokens_beta, Elements d_places, float places_beta) override {
    if (tokens_beta == 0) clear(d_tokens);
    launched(embedding_tokens(queue_, shape, tokens, dy, d_tokens), "embedding_tokens");
    launched(embedding_places(queue_, shape, context, dy, d_places, places_beta), "embedding_places");
  }

  void column_sums(Rows shape, ConstElements dy, float beta, Elements into) override {
    launched(cuda::column_sums(queue_, shape, dy, beta, into, scratch(column_scratch(shape))), "column_sums");
  }
  void slope(Slope slope, ConstElements of, ConstElements dy, Elements dx) override {
    launched(cuda::slope(queue_, slope, of, dy, dx), "slope");
  }
  void gelu(ConstElements x, Elements y) override { launched(cuda::gelu(queue_, x, y), "gelu"); }

  void loss(Rows shape, const std::int32_t* targets, float scale, Elements y, LossSums* sums) override {
    launched(cuda::loss(queue_, shape, targets, scale, y, sums, scratch(2 * shape.rows)), "loss");
  }

 private:
  float* scratch(std::size_t floats) {
    const std::size_t before = scratch_.size_bytes();
    float* const memory = scratch_.floats(floats, queue_.stream);
    book_own(scratch_.size_bytes() - before);
    return memory;
  }
  void book_own(std::size_t bytes) {
    own_bytes_ += bytes;
    if (ledger_ != nullptr && bytes > 0) ledger_->book(Category::activations, bytes);
  }

  std::string name_;
  std::unique_ptr<Stream> stream_;
  Queue queue_;
  Pool pool_;
  Marks marks_;
  std::function<void()> check_after_wait_ = [] {};
  std::deque<Stall> stalls_;  ///< that are not over, or not counted
  Nanoseconds stalled_{0};
  Scratch scratch_;
  void* workspace_ = nullptr;
  std::size_t own_bytes_ = 0;  ///< of scratch and workspace
  MemoryLedger* ledger_ = nullptr;
  std::size_t free_at_first_ = 0;
  std::unique_ptr<Products> products_;  ///< from the first product on
};

}  // namespace

const Queue& queue_of(Device& device) { return static_cast<CudaDevice&>(device).queue(); }

std::size_t devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess)
    fail(ErrorKind::usage, "--device cuda: no GPU: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  return static_cast<std::size_t>(count);
}

std::unique_ptr<Device> make_device(std::size_t index) { return std::make_unique<CudaDevice>(index); }

}  // namespace psring::cuda
