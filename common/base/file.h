#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace psring {

/// A regular file that any thread can read at any position. Reads go through the system's page cache, which all
/// processes of a host share. If the file shrinks during use, reads throw an error instead of raising a signal.
class InputFile {
 public:
  /// Throws data, naming the file, if the file is missing, unreadable, or not a regular file.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  /// The file's size when it was opened.
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from byte `offset` on. Throws data if the file ends too early or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
};

/// A file that is written under a temporary name and renamed when it is complete. A reader of `path` sees either the
/// old file or all of the new one, never a part. A link, a pipe or a device (/dev/null) is written in place. Errors are
/// data errors that name the file.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Removes the temporary file if it was not committed.
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  /// Flushes the bytes to the disk and renames the file to `path`. No write may follow.
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* doing) const;

  std::string path_;
  std::string aside_;
  int fd_ = -1;
};

/// Flushes `out`, which was opened for `path`. Throws data, naming the file and the cause, if any byte could not be
/// written.
void flush(std::ofstream& out, const std::string& path);

/// Writes `text` under a temporary name and renames the file to `path`. A reader of `path` sees either the old file or
/// the complete text, even if this process ends or the disk is full. A power failure may lose the text. A link, a pipe
/// or a device (/dev/stdout) is written in place. Throws data, naming the file and the cause.
void write_whole(const std::string& path, std::string_view text);

/// Flushes a folder's entries to the disk, so that its files keep their names after a power failure.
void sync_folder(const std::string& path);

}  // namespace psring
