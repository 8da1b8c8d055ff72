#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include <psring/common/device/device.h>

namespace psring::bench {

/// The options of `psring-bench gpu`: a step of `single` on a GPU, kernel by kernel.
struct GpuStepOptions {
  std::string model = "gpt:layers=12,dim=768,heads=12,context=1024,vocab=50304";
  std::size_t batch = 32;
  std::string precision = "bf16";
  std::string optimizer = "adamw";
  std::size_t steps = 10;  ///< timed steps; as many again with each kernel timed
  std::size_t warm_up = 3;
};

/// The calls of one kernel in a step: the device's time, and the bytes and operations that bound it from below.
struct KernelTime {
  std::size_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< read and written; each operand counts once
  double flops = 0;
};

struct GpuStep {
  std::string device;
  double copy_rate = 0;     ///< bytes read and written per second by a copy
  double matrix_rate = 0;   ///< floating-point operations per second of a large product
  double step_s = 0;        ///< median of whole steps
  double one_by_one_s = 0;  ///< median of steps without CUDA graphs
  double spread = 0;        ///< (largest - least) / median
  double samples_per_s = 0;
  double tokens_per_s = 0;                    ///< 0 if the model reads no tokens
  std::map<std::string, KernelTime> kernels;  ///< per step; the optimizer's update is "update"
  std::map<std::string, KernelTime> codecs;   ///< one encoding and decoding per codec of --compress, of as many values
                                              ///< as the model has parameters

  double floor_s(const KernelTime& kernel) const {
    return std::max(kernel.bytes / copy_rate, kernel.flops / matrix_rate);
  }
};

/// `elements`: size of the copies and side of the product that measure the rates; 0: suitable for the GPU.
GpuStep measure_gpu_step(const GpuStepOptions& options, Device& device, std::size_t elements = 0);
/// Measures a step and prints the result.
void bench_gpu_step(const GpuStepOptions& options);

}  // namespace psring::bench
