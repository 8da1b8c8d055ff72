#pragma once

namespace psring {

/// Returns the function with this name from the CUDA module. The first call loads the module. Throws usage if the
/// module is missing or this build has none.
void* cuda_symbol(const char* name);

}  // namespace psring
