#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include <psring/common/device/device.h>

namespace psring::bench {

/// What `psring-bench gpu` is asked for: a step of `single` on a GPU, taken apart.
struct GpuStepOptions {
  std::string model = "gpt:layers=12,dim=768,heads=12,context=1024,vocab=50304";
  std::size_t batch = 32;
  std::string precision = "bf16";
  std::string optimizer = "adamw";
  std::size_t steps = 10;  ///< whole ones that are timed, and as many in which each kernel is
  std::size_t warm_up = 3;
};

/// The calls of one kernel in a step: the device's time, and what it takes at least at the rates that were measured.
struct KernelTime {
  std::size_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< read and written, each operand once
  double flops = 0;
};

struct GpuStep {
  std::string device;
  double copy_rate = 0;     ///< bytes read and written a second by a copy
  double matrix_rate = 0;   ///< floating-point operations a second of a large product
  double step_s = 0;        ///< median of whole steps
  double one_by_one_s = 0;  ///< of steps without CUDA graphs
  double spread = 0;        ///< (largest - least) / median
  double samples_per_s = 0;
  double tokens_per_s = 0;                    ///< 0 where the model reads none
  std::map<std::string, KernelTime> kernels;  ///< of a step, the optimizer's update as "update"
  std::map<std::string, KernelTime> codecs;   ///< --compress, once each way, of as many values as there are parameters

  double floor_s(const KernelTime& kernel) const {
    return std::max(kernel.bytes / copy_rate, kernel.flops / matrix_rate);
  }
};

/// `elements`: of the copies and of a side of the product that rates are taken from; 0: as a GPU wants.
GpuStep measure_gpu_step(const GpuStepOptions& options, Device& device, std::size_t elements = 0);
/// Prints it.
void bench_gpu_step(const GpuStepOptions& options);

}  // namespace psring::bench
