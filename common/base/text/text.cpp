#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>

namespace psring {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;
constexpr std::size_t kMostLineBytes = std::size_t{1} << 30;

/// Removes a byte-order mark from the beginning of a text. Throws data if the beginning is not that of a text in UTF-8.
void remove_mark(std::string& text, const std::string& source) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    fail(ErrorKind::data, "{}: is a text in UTF-16; save it as UTF-8", source);
  if (text.starts_with("\x1F\x8B")) fail(ErrorKind::data, "{}: is compressed by gzip; unpack it", source);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
}

}  // namespace

std::string plain_text(std::string text, const std::string& source) {
  remove_mark(text, source);
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') text[end++] = text[i];
  text.resize(end);
  return text;
}

bool is_utf8(std::string_view bytes) {
  const auto continues = [&](std::size_t at) {
    return at < bytes.size() && (static_cast<unsigned char>(bytes[at]) & 0xC0U) == 0x80;
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t more = lead < 0x80   ? 0
                             : lead < 0xC2 ? 4
                             : lead < 0xE0 ? 1
                             : lead < 0xF0 ? 2
                             : lead < 0xF5 ? 3
                                           : 4;
    if (more == 4) return false;
    for (std::size_t i = 1; i <= more; ++i)
      if (!continues(at + i)) return false;
    if (more >= 2) {  // no longer form than needed, no surrogate, nothing above U+10FFFF
      const auto second = static_cast<unsigned char>(bytes[at + 1]);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) || (lead == 0xF0 && second < 0x90) ||
          (lead == 0xF4 && second >= 0x90))
        return false;
    }
    at += 1 + more;
  }
  return true;
}

std::string with_escapes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text;
}

std::string count_of(std::size_t count, std::string_view noun) {
  const std::string_view ending = count == 1 ? "" : noun.ends_with("ch") || noun.ends_with("ss") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, ending);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string read_text(const std::string& path, std::uint64_t most_bytes) {
  return plain_text(read_whole(path, most_bytes), path);
}

LineReader::LineReader(const std::string& path, IfMissing if_missing) : path_(path) {
  if (if_missing == IfMissing::fail || !is_missing(path)) fd_ = open_regular(path);
}

bool LineReader::next(std::string& line) {
  line.clear();
  had_end_ = false;
  while (!had_end_ && (at_ < piece_.size() || fill())) {
    const std::size_t end = std::min(piece_.find('\n', at_), piece_.size());
    had_end_ = end < piece_.size();
    line.append(piece_, at_, end - at_);
    if (line.size() > kMostLineBytes)
      fail(ErrorKind::data, "{}: a line has more than {} bytes, which is too many", path_, kMostLineBytes);
    at_ = end + (had_end_ ? 1 : 0);
  }
  if (had_end_ && line.ends_with('\r')) line.pop_back();
  if (std::exchange(begins_, false)) remove_mark(line, path_);
  return had_end_ || !line.empty();
}

bool LineReader::fill() {
  if (!fd_) return false;
  piece_.resize(kPieceBytes);
  ssize_t got = -1;
  while ((got = ::read(fd_.get(), piece_.data(), piece_.size())) < 0 && errno == EINTR) {
  }
  if (got < 0) fail(ErrorKind::data, "{}: cannot read: {}", path_, std::generic_category().message(errno));
  piece_.resize(static_cast<std::size_t>(got));
  at_ = 0;
  return got > 0;
}

}  // namespace psring
