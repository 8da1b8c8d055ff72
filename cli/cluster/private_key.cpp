#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/cli/cluster/private_key.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {

PrivateKey::PrivateKey(const std::string& text) : fd_(::memfd_create("psring job key", MFD_CLOEXEC)) {
  check(static_cast<bool>(fd_) && ::fchmod(fd_.get(), S_IRUSR | S_IWUSR) == 0 &&
            ::write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()),
        "no memory file: {}", std::strerror(errno));
}

std::filesystem::path PrivateKey::file() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

}  // namespace psring::cli
