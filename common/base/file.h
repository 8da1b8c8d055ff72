#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace psring {

/// A regular file that is read at any position, from any thread. Reads go through the system's page
/// cache, which all processes of a host share; a file that shrinks meanwhile is an error, not a signal.
class InputFile {
 public:
  /// Throws data, naming the file, where it is missing, unreadable, or not a regular file.
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  /// Its size when it was opened.
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// Fills `out` from byte `offset` on. Throws data where the file ends before, or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
};

/// A file that is written aside and takes its name when it is whole: a reader of `path` sees what was
/// there before, or all of the new file, never a part. Errors are data errors that name the file.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  /// Without commit, what was written is removed.
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  /// Brings the bytes to the disk and gives the file its name. Nothing can be written after.
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* doing) const;

  std::string path_;
  std::string aside_;
  int fd_ = -1;
};

/// Throws data, naming the file and the cause, unless all that was written into `out`, which was opened for the file,
/// is there.
void flush(std::ofstream& out, const std::string& path);

/// Writes a text aside and gives it its name: a reader of `path` sees the file as it was, or all of the text, also if
/// this process ends or the disk is full meanwhile. The text may be lost with the machine's power. Throws data, naming
/// the file and the cause.
void write_whole(const std::string& path, std::string_view text);

/// Brings a folder's entries to the disk: files in it have their names after a power failure, too.
void sync_folder(const std::string& path);

}  // namespace psring
