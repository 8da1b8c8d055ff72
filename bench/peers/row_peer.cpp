#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <sys/socket.h>

#include <psring/bench/peers/row_peer.h>
#include <psring/common/base/text/error.h>

namespace psring::bench {
namespace {

struct Request {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t check = 0;
};

/// Returns false if the other end hung up.
bool read_all(const Fd& socket, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool write_all(const Fd& socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::filesystem::path program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("psring-bench-" + name);
}

}  // namespace

void RowPeer::require(const std::string& name) {
  if (name != "ps-lite") fail(ErrorKind::usage, "--peers: expected ps-lite, got '{}'", name);
  if (!std::filesystem::exists(program(name)))
    fail(ErrorKind::usage,
         "--peers {}: was not found when psring was built: build github.com/dmlc/ps-lite, then configure psring with "
         "-DCMAKE_PREFIX_PATH=its folder, and build again",
         name);
}

RowPeer::RowPeer(const std::string& name, const RowCase& which, LocalCluster& cluster) : name_(name) {
  require(name);
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    fail(ErrorKind::data, "cannot create a socket: {}", std::strerror(errno));
  socket_ = Fd(ends[0]);
  const Fd far(ends[1]);
  const std::array<int, 1> inherited{far.get()};
  cluster.start(fmt::format("{} {}", name, which.width),
                {program(name).string(), std::to_string(far.get()), std::to_string(which.rows),
                 std::to_string(which.width), std::to_string(which.lookups), fmt::format("{}", which.zipf)},
                inherited);
}

RowRun RowPeer::run(Range batches, bool check) {
  Request request{batches.begin, batches.end, check ? 1U : 0U};
  RowRun run;
  run.times.resize(batches.size());
  if (!write_all(socket_, bytes_of(request)) || !read_all(socket_, bytes_of(run.checksum)) ||
      !read_all(socket_, std::as_writable_bytes(std::span(run.times))))
    fail(ErrorKind::peer_lost, "{} ended during batches {} to {}", name_, batches.begin, batches.end);
  return run;
}

RowPeerLink::RowPeerLink(int argc, char** argv) {
  if (argc != 6) fail(ErrorKind::usage, "a part of psring-bench, which starts it");
  socket_ = Fd(std::atoi(argv[1]));
  which_ = {std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10),
            std::strtoull(argv[4], nullptr, 10), std::strtod(argv[5], nullptr)};
}

void RowPeerLink::serve(RowWay& way) {
  DrawnBatches batches(which_);
  Request request;
  while (read_all(socket_, bytes_of(request))) {
    RowRun run = run_batches(way, batches, {request.begin, request.end}, request.check != 0);
    if (!write_all(socket_, bytes_of(run.checksum)) || !write_all(socket_, std::as_bytes(std::span(run.times)))) return;
  }
}

}  // namespace psring::bench
