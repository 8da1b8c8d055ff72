#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <psring/common/base/text/text.h>
#include <psring/worker/data/csv.h>
#include <psring/worker/data/keyed/tsv.h>

namespace psring::worker {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kMostLineBytes = std::size_t{1} << 26;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Calls each(text, first byte) for the pieces of a file's bytes [0, end).
void for_each_piece(const InputFile& file, std::uint64_t end, auto&& each) {
  std::string piece(std::min<std::uint64_t>(kReadBytes, end), '\0');
  for (std::uint64_t at = 0; at < end; at += piece.size()) {
    piece.resize(std::min<std::uint64_t>(kReadBytes, end - at));
    file.read(at, std::as_writable_bytes(std::span(piece)));
    each(std::string_view(piece), at);
  }
}

}  // namespace

TsvFile::TsvFile(const std::string& path) : file_(path) {
  bool open = false;  // a line has begun
  for_each_piece(file_, file_.size_bytes(), [&](std::string_view piece, std::uint64_t first) {
    if (first == 0) plain_text(std::string(piece.substr(0, 2)), path);  // throws if the text is in UTF-16
    std::size_t at = first == 0 && piece.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    while (at < piece.size()) {
      if (!open && piece[at] != '\n' && piece[at] != '\r') {
        begins_.push_back(first + at);
        open = true;
      }
      const std::size_t end = open ? piece.find('\n', at) : at;
      if (open && first + std::min(end, piece.size()) - begins_.back() > kMostLineBytes)
        fail(ErrorKind::data, "{}: a line has more than {} bytes, which is too many", path, kMostLineBytes);
      if (end == std::string_view::npos) return;
      open = false;
      at = end + 1;
    }
  });
  begins_.push_back(file_.size_bytes());
}

void TsvFile::read(std::size_t number, Line& line) const {
  check(number < size(), "{}: line {} of {}", path(), number, size());
  line.number = number;
  line.text.resize(begins_[number + 1] - begins_[number]);
  file_.read(begins_[number], std::as_writable_bytes(std::span(line.text)));
  line.text.resize(std::min(line.text.find('\n'), line.text.size()));
  if (line.text.ends_with('\r')) line.text.pop_back();
  line.columns.clear();
  for (std::string_view rest = line.text;;) {
    const std::size_t tab = std::min(rest.find('\t'), rest.size());
    line.columns.push_back(rest.substr(0, tab));
    if (tab == rest.size()) return;
    rest.remove_prefix(tab + 1);
  }
}

void TsvFile::refuse(const Line& line, std::optional<std::size_t> column, const std::string& why) const {
  std::size_t before = 0;
  for_each_piece(file_, begins_[line.number], [&](std::string_view piece, std::uint64_t /*first*/) {
    before += static_cast<std::size_t>(std::ranges::count(piece, '\n'));
  });
  fail(ErrorKind::data, "{}: line {}{}: {}", path(), before + 1,
       column ? fmt::format(", column {}", *column + 1) : std::string(), why);
}

float TsvFile::number(const Line& line, std::size_t column) const {
  const std::string_view text = line.columns[column];
  float nearest = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nearest);
  if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(nearest)) return nearest;
  const std::optional<float> value = number_of(text);  // also numbers below the least of f32
  if (!value || !std::isfinite(*value))
    refuse(line, column, fmt::format("'{:.80}' is not {}", text, value && !std::isnan(*value) ? "finite" : "a number"));
  return *value;
}

std::uint64_t TsvFile::whole(const Line& line, std::size_t column, int base, std::size_t bits) const {
  const std::string_view text = line.columns[column];
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error == std::errc::invalid_argument || end != text.data() + text.size())
    refuse(line, column, fmt::format("'{:.80}' is not a {} number", text, base == 16 ? "hexadecimal" : "whole"));
  if (error == std::errc::result_out_of_range || (bits < 64 && value >> bits != 0))
    refuse(line, column, fmt::format("the key {:.80} has more than {} bits", text, bits));
  return value;
}

}  // namespace psring::worker
