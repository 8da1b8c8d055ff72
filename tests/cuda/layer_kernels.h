#pragma once

#include <memory>

#include "on_device.h"
#include <psring/worker/model/device/tensor_kernels.h>

namespace psring::test {

/// The layers' kernels on `device()`.
inline worker::TensorKernels& kernels() {
  static const std::unique_ptr<worker::TensorKernels> all = worker::make_tensor_kernels(device());
  return *all;
}

}  // namespace psring::test
