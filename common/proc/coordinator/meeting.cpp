#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/net/host.h>
#include <psring/common/proc/coordinator/meeting.h>

namespace psring {
namespace {

constexpr std::size_t kMostTextBytes = 16384;  // a path, an address and a key

/// Throws unauthorised if an open file or folder is another user's, or open to other users.
void check_private(int fd, const std::filesystem::path& path, mode_t type) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail(ErrorKind::data, "{}: {}", path.string(), std::strerror(errno));
  if ((status.st_mode & S_IFMT) != type)
    fail(ErrorKind::unauthorised, "--meeting: {}: is no {}", path.string(), type == S_IFDIR ? "folder" : "file");
  if (status.st_uid != ::geteuid())
    fail(ErrorKind::unauthorised, "--meeting: {}: belongs to another user; choose another folder", path.string());
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    fail(ErrorKind::unauthorised, "--meeting: {}: other users can use it; run chmod {} on it", path.string(),
         type == S_IFDIR ? "700" : "600");
}

std::optional<MeetingPoint> parse(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object() || !json.contains("endpoint")) return std::nullopt;
    return MeetingPoint{json.value("endpoint", ""), json.value("key", ""), json.value("run_folder", ""),
                        json.value("status", 0)};
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace

MeetingFolder::MeetingFolder(std::filesystem::path folder, std::string name)
    : path_(std::move(folder)), name_(std::move(name)) {
  if (::mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    fail(ErrorKind::data, "--meeting {}: cannot make the folder: {}", path_.string(), std::strerror(errno));
  open();
}

MeetingFolder::~MeetingFolder() {
  if (!published_) return;
  try {
    ::unlinkat(open().get(), name_.c_str(), 0);
  } catch (const Error&) {  // the folder has gone
  }
}

/// A folder that was opened just now shows the entries that other hosts have just made, on NFS, too.
Fd MeetingFolder::open() const {
  Fd folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) fail(ErrorKind::data, "--meeting {}: {}", path_.string(), std::strerror(errno));
  check_private(folder.get(), path_, S_IFDIR);
  return folder;
}

void MeetingFolder::write(const std::string& name, std::string_view text) const {
  const Fd folder = open();
  const std::string aside = fmt::format(".{}-{}-{}", name, net::host_name(), ::getpid());
  ::unlinkat(folder.get(), aside.c_str(), 0);
  const Fd file(
      ::openat(folder.get(), aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const bool written = file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(file.get()) == 0;
  // A link, unlike a renamed file, never replaces a file.
  const bool linked = written && ::linkat(folder.get(), aside.c_str(), folder.get(), name.c_str(), 0) == 0;
  const int error = errno;
  ::unlinkat(folder.get(), aside.c_str(), 0);
  if (linked) return;
  const std::string path = (path_ / name).string();
  if (written && error == EEXIST)
    fail(ErrorKind::usage, "--meeting: {}: exists already; if no job of this name runs, remove it", path);
  fail(ErrorKind::data, "--meeting: {}: cannot write: {}", path, std::strerror(error));
}

void MeetingFolder::publish(const MeetingPoint& point) {
  const Json json = {
      {"endpoint", point.endpoint}, {"key", point.key}, {"run_folder", point.run_folder}, {"status", point.status}};
  write(name_, json.dump());
  published_ = true;
}

std::optional<MeetingPoint> MeetingFolder::look() const {
  const Fd folder = open();
  const Fd file(::openat(folder.get(), name_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const std::filesystem::path path = path_ / name_;
  if (!file && (errno == ENOENT || errno == ESTALE)) return std::nullopt;
  if (!file) fail(ErrorKind::data, "--meeting: {}: {}", path.string(), std::strerror(errno));
  check_private(file.get(), path, S_IFREG);
  std::string text(kMostTextBytes, '\0');
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0 && errno == ESTALE) return std::nullopt;
  if (bytes < 0) fail(ErrorKind::data, "--meeting: {}: {}", path.string(), std::strerror(errno));
  text.resize(static_cast<std::size_t>(bytes));
  std::optional<MeetingPoint> point = parse(text);
  if (!point) fail(ErrorKind::data, "--meeting: {}: was not written by task 0 of a job", path.string());
  return point;
}

std::string MeetingFolder::mark_of(std::uint32_t rank) const { return fmt::format("{}.{}", name_, rank); }

void MeetingFolder::acknowledge(std::uint32_t rank) const { write(mark_of(rank), ""); }

bool MeetingFolder::all_acknowledged(std::size_t tasks) {
  const Fd folder = open();
  for (std::uint32_t rank = 1; rank < tasks; ++rank)
    if (!acknowledged_.contains(rank) && ::unlinkat(folder.get(), mark_of(rank).c_str(), 0) == 0)
      acknowledged_.insert(rank);
  return acknowledged_.size() + 1 >= tasks;
}

}  // namespace psring
