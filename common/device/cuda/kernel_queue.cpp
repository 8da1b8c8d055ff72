#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/kernel_queue.h>

namespace psring::cuda {

void check_launch(cudaError_t error, const char* kernel) {
  if (error == kNoKernel) fail(ErrorKind::bug, "{}: no kernel for such types or sizes", kernel);
  check_call(error, kernel);
}

KernelQueue::~KernelQueue() {
  cudaStreamSynchronize(queue_.stream);  // no caller waits for pending kernels any more
  if (scratch_ != nullptr) pool_.free(scratch_);
  if (workspace_ != nullptr) pool_.free(workspace_);
  if (ledger_ != nullptr) ledger_->release(Category::activations, booked_bytes_);
}

std::byte* KernelQueue::allocate(std::size_t bytes, Pool::Kind kind) {
  flushed();  // before memory that they use could be freed
  if (std::byte* const memory = pool_.allocate(bytes, kind)) return memory;
  check_call(cudaStreamSynchronize(queue_.stream), "cudaStreamSynchronize");
  launches_.forget();
  return pool_.allocate(bytes, kind);
}

std::byte* KernelQueue::scratch_memory(std::size_t bytes) {
  std::byte* const memory = allocate(bytes, Pool::Kind::own);
  if (memory == nullptr) fail(ErrorKind::data, "the device has no {} MiB for its kernels' scratch memory", bytes >> 20);
  return memory;
}

float* KernelQueue::scratch(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes > scratch_bytes_) {
    check_call(cudaStreamSynchronize(flushed().stream), "cudaStreamSynchronize");  // kernels use the old memory
    const std::size_t before = std::exchange(scratch_bytes_, 0);
    if (scratch_ != nullptr) pool_.free(std::exchange(scratch_, nullptr));
    scratch_ = scratch_memory(bytes);
    scratch_bytes_ = bytes;
    book_more(bytes - before);
  }
  return reinterpret_cast<float*>(scratch_);
}

void* KernelQueue::workspace(std::size_t bytes) {
  if (workspace_ == nullptr) {
    workspace_ = scratch_memory(bytes);
    book_more(bytes);
  }
  return workspace_;
}

void KernelQueue::book(MemoryLedger& ledger) {
  check(ledger_ == nullptr, "a device with two ledgers");
  ledger_ = &ledger;
  ledger.book(Category::activations, booked_bytes_);
}

void KernelQueue::book_more(std::size_t bytes) {
  booked_bytes_ += bytes;
  if (ledger_ != nullptr) ledger_->book(Category::activations, bytes);
}

}  // namespace psring::cuda
