#include <fmt/format.h>

#include <psring/common/base/crc32c.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/data/tokenizer/tokenizer_note.h>

namespace psring::worker {
namespace {

constexpr std::uint64_t kMostNoteBytes = 4096;

std::string note_file(const std::string& tokens_file) { return tokens_file + ".tokenizer"; }

}  // namespace

std::string fingerprint_of(const Tokenizer& tokenizer) {
  std::uint32_t crc = 0;
  for (std::uint32_t token = 0; token < tokenizer.size(); ++token) {
    const std::string text = fmt::format("{}:{}", tokenizer.token(token).size(), tokenizer.token(token));
    crc = crc32c(std::as_bytes(std::span(text)), crc);
  }
  return fmt::format("{} tokens, CRC32C {:08x}", tokenizer.size(), crc);
}

void write_tokenizer_note(const std::string& tokens_file, const Tokenizer& tokenizer) {
  write_whole(note_file(tokens_file), fingerprint_of(tokenizer) + "\n");
}

std::string tokenizer_note(const std::string& tokens_file) {
  const std::string file = note_file(tokens_file);
  const std::string text = plain_text(read_whole_if_present(file, kMostNoteBytes).value_or(""), file);
  return text.substr(0, text.find('\n'));
}

}  // namespace psring::worker
