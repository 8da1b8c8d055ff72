#pragma once

#include <utility>

#include <cuda_runtime.h>

#include <psring/common/base/clock.h>
#include <psring/common/device/cuda/errors.h>

namespace psring::cuda {

/// Owns a CUDA stream: a queue of work on the device.
class Stream {
 public:
  enum class Urgency { normal, high };
  explicit Stream(Urgency urgency = Urgency::normal) {
    int least = 0;
    int greatest = 0;
    check_call(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check_call(
        cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, urgency == Urgency::high ? greatest : least),
        "cudaStreamCreateWithPriority");
  }
  ~Stream() { cudaStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

/// A position in a queue, for which other queues and the host can wait. An event that was never recorded counts as
/// reached.
class Event {
 public:
  /// `flags`: cudaEventDefault if the event has to know the time at which it was reached.
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    check_call(cudaEventCreateWithFlags(&handle_, flags), "cudaEventCreateWithFlags");
  }
  ~Event() {
    if (handle_ != nullptr) cudaEventDestroy(handle_);
  }
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  /// Moves the event to the queue's current end.
  void record(cudaStream_t stream) { check_call(cudaEventRecord(handle_, stream), "cudaEventRecord"); }
  /// Makes later work in `stream` wait for the event; the host does not wait.
  void hold(cudaStream_t stream) const { check_call(cudaStreamWaitEvent(stream, handle_, 0), "cudaStreamWaitEvent"); }
  void wait() const { check_call(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }
  /// Returns the time between two events. REQUIRES: both are reached and were made with cudaEventDefault.
  Nanoseconds since(const Event& before) const {
    float milliseconds = 0;
    check_call(cudaEventElapsedTime(&milliseconds, before.handle_, handle_), "cudaEventElapsedTime");
    return from_seconds(static_cast<double>(milliseconds) / 1000);
  }
  bool reached() const {
    const cudaError_t error = cudaEventQuery(handle_);
    if (error == cudaErrorNotReady)
      cudaGetLastError();  // clears the error, so that the next call does not return it
    else
      check_call(error, "cudaEventQuery");
    return error == cudaSuccess;
  }

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace psring::cuda
