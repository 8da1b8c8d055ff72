#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/system/file.h>

namespace psring {

// Text as editors of all systems write it: with or without a byte-order mark, with lines that end in LF or in CR LF.
// Every text file is read through these functions. A corpus (--data text:FILE, psring tokenize) is bytes, not text.

/// Returns a text without its byte-order mark, and with LF for each CR LF. Throws data, naming `source`, if the text
/// begins with the mark of UTF-16.
std::string plain_text(std::string text, const std::string& source);

/// Returns whether the bytes are UTF-8 (RFC 3629).
bool is_utf8(std::string_view bytes);
/// Returns a text in which every byte that is not ASCII reads \xNN, for messages about text that is not UTF-8.
std::string with_escapes(std::string_view bytes);

/// Returns the parts of a text between separators: one more than there are separators.
std::vector<std::string> split(std::string_view text, char separator = ',');

/// Returns "1 worker", "2 workers", "2 batches".
std::string count_of(std::size_t count, std::string_view noun);

/// Returns the lines of a plain text, without their ends. A last line does not need an end.
std::vector<std::string_view> lines_of(std::string_view text);

/// Returns the plain text of a regular file. Throws as read_whole does.
std::string read_text(const std::string& path, std::uint64_t most_bytes = kMostWholeBytes);

/// The lines of a regular file, read piece by piece. Holds a piece and a line in memory.
class LineReader {
 public:
  enum class IfMissing : std::uint8_t { fail, no_lines };

  /// Throws as open_regular does.
  explicit LineReader(const std::string& path, IfMissing if_missing = IfMissing::fail);

  /// Writes the next line without its end. Returns false at the end of the file.
  bool next(std::string& line);
  /// Whether the last line had an end. A line without one is still being written, or is the last of a text.
  bool had_end() const { return had_end_; }

 private:
  bool fill();

  std::string path_;
  Fd fd_;
  std::string piece_;
  std::size_t at_ = 0;
  bool begins_ = true;
  bool had_end_ = true;
};

}  // namespace psring
