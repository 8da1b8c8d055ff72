#pragma once

#include <string>

namespace psring {

/// Names all that decides the bits of this process's dense kernels: the processor's model, oneDNN's version, and the
/// vector instructions that oneDNN uses (the widest, or what ONEDNN_MAX_CPU_ISA allows), in one line: "AMD EPYC 9654,
/// oneDNN 2.6.3 with AVX-512 BF16". Processes with the same line compute the same bits from the same inputs and shapes.
/// The model counts, too, as oneDNN cuts sums by the sizes of caches.
std::string describe_processor();

}  // namespace psring
