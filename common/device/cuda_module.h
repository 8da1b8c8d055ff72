#pragma once

namespace psring {

/// What the module with CUDA's part offers by that name, loaded with the first call. Throws usage where there is no
/// module, or this build has none.
void* cuda_symbol(const char* name);

}  // namespace psring
