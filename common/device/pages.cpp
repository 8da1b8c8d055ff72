#include <unistd.h>

#include <psring/common/device/pages.h>

namespace psring {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace psring
