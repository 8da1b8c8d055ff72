#pragma once

// CUDA's runtime on the host, for tests: found in place of the toolkit's header, it makes the sources of the CUDA
// backend compile as C++, and their kernels run here, whole blocks of threads after each other. So index arithmetic,
// barriers, shuffles and sums are tested where there is no GPU. Each stream is a thread of its own, which now and then
// takes its time, so that work of two streams that no event orders comes in any order. What it does not show: races
// between threads of a kernel, and speed.
//
// There is one GPU, or as many as PSRING_TEST_GPUS says. A host thread is a process with a device of its own, as far as
// cudaFree waits for its streams alone; memory is one.
//
// Device memory can be touched by kernels and copies alone: a host that reads or writes it dies of SIGSEGV.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim;
inline thread_local dim3 gridDim;

namespace cuda_on_host {

constexpr unsigned kWarp = 32;
constexpr unsigned kAll = 0xffffffffU;

/// The calling thread waits until all threads of its block, or of its warp, have come here.
void block_barrier();
void warp_barrier();
/// Returns the values of all lanes of the warp, each a word; valid until the next barrier.
const std::uint64_t* exchange(std::uint64_t value);
unsigned lane();
void* dynamic_shared();
/// In the stream's thread.
void run(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);
/// How much dynamic shared memory a kernel may be launched with: as was said last, 48 KiB else.
bool allow_shared(const void* kernel, std::size_t bytes);
bool shared_is_allowed(const void* kernel, std::size_t bytes);
[[noreturn]] void die(const char* what);

template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  if (mask != kAll) die("a shuffle of less than a warp");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits)[source];
  warp_barrier();
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
/// Each lane shows the others a value of its own; the result gives that of a lane, until the next barrier.
template <class T>
auto show(const T& mine) {
  const std::uint64_t* const all = exchange(reinterpret_cast<std::uint64_t>(&mine));
  return [all](unsigned of_lane) -> const T& { return *reinterpret_cast<const T*>(all[of_lane]); };
}

}  // namespace cuda_on_host

inline void __syncthreads() { cuda_on_host::block_barrier(); }
inline void __syncwarp() { cuda_on_host::warp_barrier(); }
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return cuda_on_host::shuffle(mask, value, static_cast<unsigned>(source) % cuda_on_host::kWarp);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return cuda_on_host::shuffle(mask, value, cuda_on_host::lane() ^ static_cast<unsigned>(bits));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = cuda_on_host::lane();
  return cuda_on_host::shuffle(mask, value, lane < by ? lane : lane - by);
}
inline unsigned __ballot_sync(unsigned mask, bool here) {
  if (mask != cuda_on_host::kAll) cuda_on_host::die("a ballot of less than a warp");
  const std::uint64_t* const all = cuda_on_host::exchange(here ? 1 : 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < cuda_on_host::kWarp; ++lane) bits |= static_cast<unsigned>(all[lane]) << lane;
  cuda_on_host::warp_barrier();
  return bits;
}
inline unsigned __popc(unsigned bits) { return static_cast<unsigned>(std::popcount(bits)); }
/// A stream's threads take turns, and no two streams' kernels add to one place.
inline unsigned atomicAdd(unsigned* at, unsigned value) { return std::exchange(*at, *at + value); }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
inline float __expf(float x) { return std::exp(x); }
inline float __ldg(const float* at) { return *at; }
template <class T>
T __ldcg(const T* at) {
  return *at;
}
inline void __threadfence() {}

struct cudaOnHostStream;
namespace cuda_on_host {
/// The stream's thread does it, after all that it has been given before, with device memory open.
void queue(cudaOnHostStream* stream, std::function<void()> work);
/// The same of work that waits for other threads, with device memory closed; it is open `inside`.
void queue_blocking(cudaOnHostStream* stream, std::function<void()> work);
void inside(const std::function<void()>& work);
}  // namespace cuda_on_host

// The API, as far as it is called.

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaHostRegisterDefault = 0;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
struct cudaOnHostEvent;
struct cudaOnHostGraph;
using cudaGraph_t = cudaOnHostGraph*;
using cudaGraphExec_t = cudaOnHostGraph*;
using cudaStream_t = cudaOnHostStream*;
using cudaEvent_t = cudaOnHostEvent*;
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, l2CacheSize;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  void* attrs;
  unsigned numAttrs;
};

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  const bool allowed =
      cuda_on_host::allow_shared(reinterpret_cast<const void*>(kernel), static_cast<std::size_t>(bytes));
  return allowed ? cudaSuccess : cudaErrorInvalidValue;
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (!cuda_on_host::shared_is_allowed(reinterpret_cast<const void*>(kernel), config->dynamicSmemBytes))
    return cudaErrorInvalidValue;
  // As the toolkit's: each argument is converted to the parameter first.
  const auto call = [kernel](Parameters... values) { return [=] { kernel(values...); }; };
  cuda_on_host::queue(config->stream,
                      [grid = config->gridDim, block = config->blockDim, shared = config->dynamicSmemBytes,
                       thread = call(static_cast<Parameters>(std::forward<Arguments>(arguments))...)] {
                        cuda_on_host::run(grid, block, shared, thread);
                      });
  return cudaSuccess;
}
