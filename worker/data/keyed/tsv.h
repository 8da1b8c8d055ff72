#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>

namespace psring::worker {

/// A text file whose lines are cut into columns by tabs. Lines end in LF or in CR LF; empty lines and a byte-order mark
/// are skipped. Only the places of the lines are held in memory, so that any thread can read any line of a large file.
class TsvFile {
 public:
  /// Reads the file once, to find its lines. Throws as open_regular does.
  explicit TsvFile(const std::string& path);

  /// The columns of a line. The views refer to `text`.
  struct Line {
    std::size_t number = 0;  ///< of the line, among those that are not empty, from 0
    std::string text = {};
    std::vector<std::string_view> columns = {};
  };
  const std::string& path() const { return file_.path(); }
  const InputFile& file() const { return file_; }
  std::size_t size() const { return begins_.size() - 1; }
  void read(std::size_t number, Line& line) const;

  /// Throws data, naming the file, the line, and the column (from 0; nothing: the whole line).
  [[noreturn]] void refuse(const Line& line, std::optional<std::size_t> column, const std::string& why) const;
  /// A column that is a real number, or a whole one. Throws data as `refuse` does.
  float number(const Line& line, std::size_t column) const;
  std::uint64_t whole(const Line& line, std::size_t column, int base, std::size_t bits) const;

 private:
  InputFile file_;
  std::vector<std::uint64_t> begins_;  ///< of lines that are not empty; the last is the end of the file
};

/// A key for a text: the 64-bit FNV-1a hash of its bytes (Fowler, Noll, Vo), by which a row can be found without a list
/// of all texts.
constexpr std::uint64_t key_of_text(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return hash;
}

}  // namespace psring::worker
