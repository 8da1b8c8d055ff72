#pragma once

#include <string>

namespace psring {

/// Describes everything that determines the bits of this process's dense kernels: the processor's model, oneDNN's
/// version, and the vector instructions that oneDNN uses (the widest, or those that ONEDNN_MAX_CPU_ISA allows).
/// Example: "AMD EPYC 9654, oneDNN 2.6.3 with AVX-512 BF16". Processes with the same line compute the same bits from
/// the same inputs and shapes. The model is part of the line because oneDNN splits sums by cache sizes.
std::string describe_processor();

/// Returns the model that /proc/cpuinfo names, else "unknown processor".
std::string processor_model();

}  // namespace psring
