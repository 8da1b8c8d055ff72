#include <utility>

#include <psring/common/base/error.h>
#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/kernel_queue.h>

namespace psring::cuda {

void check_launch(cudaError_t error, const char* kernel) {
  if (error == kNoKernel) fail(ErrorKind::bug, "{}: no kernel for such types or sizes", kernel);
  check_call(error, kernel);
}

KernelQueue::~KernelQueue() {
  cudaStreamSynchronize(queue_.stream);  // no caller waits for pending kernels any more
  cudaFree(scratch_);
  cudaFree(workspace_);
  if (ledger_ != nullptr) ledger_->release(Category::activations, booked_bytes_);
}

float* KernelQueue::scratch(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes > scratch_bytes_) {
    check_call(cudaStreamSynchronize(flushed().stream), "cudaStreamSynchronize");  // kernels use the old memory
    const std::size_t before = std::exchange(scratch_bytes_, 0);
    check_call(cudaFree(std::exchange(scratch_, nullptr)), "cudaFree");
    check_call(cudaMalloc(&scratch_, bytes), "cudaMalloc");
    scratch_bytes_ = bytes;
    book_more(bytes - before);
  }
  return static_cast<float*>(scratch_);
}

void* KernelQueue::workspace(std::size_t bytes) {
  if (workspace_ == nullptr) {
    check_call(cudaMalloc(&workspace_, bytes), "cudaMalloc");
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
