#include <string_view>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/errors.h>

namespace psring::cuda {

void check_call(cudaError_t error, const char* call, const std::source_location& place) {
  if (error == cudaSuccess) return;
  const std::string_view path = place.file_name();
  fail(error == cudaErrorMemoryAllocation ? ErrorKind::data : ErrorKind::bug, "{}: {} ({}), at {}:{}", call,
       cudaGetErrorString(error), cudaGetErrorName(error), path.substr(path.rfind('/') + 1), place.line());
}

}  // namespace psring::cuda
