#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/host.h>

namespace psring::net {

std::string host_id() {
  static constexpr const char* kBoot = "/proc/sys/kernel/random/boot_id";
  static constexpr const char* kNetwork = "/proc/self/ns/net";
  std::string boot;
  if (!(std::ifstream(kBoot) >> boot)) fail(ErrorKind::data, "cannot read {}", kBoot);
  struct stat network {};
  if (::stat(kNetwork, &network) != 0) fail(ErrorKind::data, "{}: {}", kNetwork, std::strerror(errno));
  return fmt::format("{}/{}/{}", boot, network.st_ino, ::geteuid());
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::uint64_t pid_namespace() {
  struct stat numbers {};
  return ::stat("/proc/self/ns/pid", &numbers) == 0 ? numbers.st_ino : 0;
}

}  // namespace psring::net
