#include <fstream>
#include <string>
#include <string_view>

#include <oneapi/dnnl/dnnl.h>

#include <psring/common/base/text/error.h>
#include <psring/common/device/processor.h>

namespace psring {
namespace {

std::string_view vector_instructions() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2 VNNI";
    case dnnl_cpu_isa_avx512_core:
      return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "AVX-512 BF16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "AMX";
    default:
      return "other vector instructions";
  }
}

}  // namespace

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "unknown processor";
}

std::string describe_processor() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}, oneDNN {}.{}.{} with {}", processor_model(), version->major, version->minor, version->patch,
                     vector_instructions());
}

}  // namespace psring
