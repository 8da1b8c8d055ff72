#include <cerrno>
#include <cstring>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/common/proc/logs/appended_files.h>

namespace psring::net {
namespace {

constexpr std::size_t kOpenFiles = 256;
constexpr const char* kJournal = "reports/appends";

struct JournalLine {
  std::string process;
  std::uint64_t number = 0;
  std::string name;
  std::uintmax_t begin = 0;
  std::uintmax_t bytes = 0;
};

std::istream& operator>>(std::istream& in, JournalLine& entry) {
  return in >> entry.process >> entry.number >> entry.name >> entry.begin >> entry.bytes;
}

}  // namespace

AppendedFiles::AppendedFiles(std::filesystem::path folder, bool goes_on) : folder_(std::move(folder)) {
  make_folder(folder_);
  if (goes_on) undo_incomplete_append();
}

void AppendedFiles::undo_incomplete_append() {
  JournalLine newest;
  std::uint64_t number_before = 0;  // the previous append of the newest entry's process
  std::uintmax_t whole = 0;         // bytes of complete lines
  LineReader journal(folder_ / kJournal, LineReader::IfMissing::no_lines);
  for (std::string line; journal.next(line) && journal.had_end(); whole += line.size() + 1) {
    std::istringstream(line) >> newest;
    number_before = std::exchange(last_[newest.process], newest.number);
  }
  if (size_of(kJournal) > whole) std::filesystem::resize_file(folder_ / kJournal, whole);
  if (newest.process.empty() || size_of(newest.name) >= newest.begin + newest.bytes) return;
  if (size_of(newest.name) > newest.begin) std::filesystem::resize_file(folder_ / newest.name, newest.begin);
  last_[newest.process] = number_before;
}

bool AppendedFiles::append_once(const std::string& process, std::uint64_t number, const std::string& name,
                                std::span<const std::byte> bytes) {
  std::uint64_t& last = last_[process];
  if (number <= last) return false;
  const std::string line = fmt::format("{} {} {} {} {}\n", process, number, name, size_of(name), bytes.size());
  append(kJournal, std::as_bytes(std::span(line)));
  append(name, bytes);
  last = number;
  return true;
}

std::uintmax_t AppendedFiles::size_before_appends(const std::string& name) const {
  std::istringstream journal(read_whole_if_present(folder_ / kJournal).value_or(""));
  for (JournalLine entry; journal >> entry;)
    if (entry.name == name) return entry.begin;
  return size_of(name);
}

void AppendedFiles::append(const std::string& name, std::span<const std::byte> bytes) {
  auto found = files_.find(name);
  if (found == files_.end()) found = files_.emplace(name, open(name, O_APPEND)).first;
  write(name, found->second, bytes);
  if (files_.size() > kOpenFiles) files_.clear();
}

void AppendedFiles::replace(const std::string& name, std::string_view text) {
  write(name, open(name, O_TRUNC), std::as_bytes(std::span(text.data(), text.size())));
}

void AppendedFiles::publish(const std::string& name, std::string_view text) {
  const std::filesystem::path path(name);
  const std::filesystem::path draft = path.parent_path() / ("." + path.filename().string());
  replace(draft.string(), text);
  std::error_code error;
  std::filesystem::rename(folder_ / draft, folder_ / path, error);
  if (error) fail(ErrorKind::data, "{}: cannot replace: {}", (folder_ / path).string(), error.message());
}

std::uintmax_t AppendedFiles::size_of(const std::string& name) const {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(folder_ / name, error);
  return error ? 0 : size;
}

Fd AppendedFiles::open(const std::string& name, int how) const {
  const std::filesystem::path path = folder_ / name;
  make_folder(path.parent_path());
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | how, 0644));
  if (!file) fail(ErrorKind::data, "{}: {}", path.string(), std::strerror(errno));
  return file;
}

void AppendedFiles::write(const std::string& name, const Fd& file, std::span<const std::byte> bytes) const {
  if (!write_all(file.get(), bytes))
    fail(ErrorKind::data, "{}: cannot write: {}", (folder_ / name).string(), std::strerror(errno));
}

}  // namespace psring::net
