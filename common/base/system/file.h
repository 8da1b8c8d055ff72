#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <psring/common/base/system/fd.h>

namespace psring {

/// Opens a regular file for reading; symbolic links are followed. Never waits: a pipe without a writer does not hold
/// the process. Throws data, naming the path, if there is no such file, if it cannot be opened, or if it is a folder, a
/// pipe, a device or a socket.
Fd open_regular(const std::string& path);

/// Makes a folder, and those above it, unless it exists. Throws data, naming it.
void make_folder(const std::string& path);

/// Returns whether there is no file of this name. A link to a missing file is missing; a file that may not be seen is
/// not.
bool is_missing(const std::string& path);

/// Throws data, naming the path, if there is no such folder, or something else than a folder.
void check_folder(const std::string& path);

/// Bytes that a file may have at most if its reader sets no other limit.
inline constexpr std::uint64_t kMostWholeBytes = std::uint64_t{1} << 34;

/// Returns all bytes of a regular file, also of a file whose size the system does not tell (/proc). Throws as
/// open_regular does, and if the file has more than `most_bytes`.
std::string read_whole(const std::string& path, std::uint64_t most_bytes = kMostWholeBytes);
/// Returns all bytes of a file that was opened for reading under the name `path`, and that does not wait for writers.
std::string read_whole(const Fd& fd, const std::string& path, std::uint64_t most_bytes);
/// The same, but returns nothing if there is no such file.
std::optional<std::string> read_whole_if_present(const std::string& path, std::uint64_t most_bytes = kMostWholeBytes);
/// The same, but the file may also be a pipe or a terminal, which is read until its writers have closed it. A signal
/// whose effect is to end the process ends the wait.
std::string read_stream(const std::string& path, std::uint64_t most_bytes = kMostWholeBytes);

/// A regular file that any thread can read at any position. Reads go through the system's page cache, which all
/// processes of a host share. If the file shrinks during use, reads throw an error instead of raising a signal.
class InputFile {
 public:
  /// Throws as open_regular does.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  /// The file's size when it was opened.
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from byte `offset` on. Throws data if the file ends too early or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// Returns another descriptor of the file, which the caller closes, or -1.
  int duplicate() const;

 private:
  std::string path_;
  Fd fd_;
  std::uint64_t size_bytes_ = 0;
};

/// A file that is written under a temporary name and renamed when it is complete. A reader of `path` sees either the
/// old file or all of the new one, never a part. A link, a pipe or a device (/dev/null) is written in place; a pipe
/// that nobody reads is refused. Errors are data errors that name the file.
class OutputFile {
 public:
  enum class Durable : bool { no, yes };

  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes the temporary file if it was not committed.
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  /// Flushes the bytes to the disk if the file is durable (a power failure may lose it otherwise), and renames the file
  /// to `path`. No write may follow.
  void commit(Durable durable = Durable::yes);

 private:
  [[noreturn]] void fail_errno(const char* doing) const;

  std::string path_;
  std::string aside_;
  int fd_ = -1;
};

/// Flushes `out`, which was opened for `path`. Throws data, naming the file and the cause, if any byte could not be
/// written.
void flush(std::ofstream& out, const std::string& path);

/// Writes `text` as an OutputFile that is not durable.
void write_whole(const std::string& path, std::string_view text);

/// Flushes a folder's entries to the disk, so that its files keep their names after a power failure.
void sync_folder(const std::string& path);

}  // namespace psring
