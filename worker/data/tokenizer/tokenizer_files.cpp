#include <filesystem>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/common/base/text/text.h>
#include <psring/worker/data/tokenizer/pretokenize.h>
#include <psring/worker/data/tokenizer/tokenizer.h>

namespace psring::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{256} << 20;
constexpr std::size_t kMostTokenIds = 1 << 24;

/// Returns whether GPT-2's files write a byte as the character of the same number.
bool is_printable(std::uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

/// Returns the code point that stands for a byte: the byte's own number, or 256, 257 ... for the others in order.
std::uint32_t code_of_byte(std::uint32_t byte) {
  if (is_printable(byte)) return byte;
  std::uint32_t before = 0;
  for (std::uint32_t other = 0; other < byte; ++other) before += is_printable(other) ? 0 : 1;
  return 256 + before;
}

std::string utf8(std::uint32_t code) {  // below 0x800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

Json parse_json(const fs::path& path) {
  try {
    return Json::parse(read_text(path, kMostFileBytes));
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: not JSON: {}", path.string(), error.what());
  }
}

/// Returns the bytes that a token's text stands for; a text that stands for none, such as <|endoftext|>, is its bytes.
std::string token_bytes(const std::string& text) { return from_printable(text).value_or(text); }

/// Collects tokens by id.
class Vocabulary {
 public:
  explicit Vocabulary(std::string source) : source_(std::move(source)) {}

  void add(const std::string& text, const Json& id, bool special) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kMostTokenIds)
      fail(ErrorKind::data, "{}: token '{}' has no number below {}", source_, text, kMostTokenIds);
    const auto at = id.get<std::size_t>();
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      used_.resize(at + 1);
    }
    const std::string bytes = special ? text : token_bytes(text);
    if (used_[at] && tokens_[at] != bytes)
      fail(ErrorKind::data, "{}: tokens '{}' and '{}' have the same number {}", source_, printable(tokens_[at]), text,
           at);
    used_[at] = true;
    tokens_[at] = bytes;
  }
  void add_all(const Json& object) {
    if (!object.is_object()) fail(ErrorKind::data, "{}: the vocabulary is not an object", source_);
    for (const auto& member : object.items()) add(member.key, member.value, member.key == kEndOfText);
  }
  std::vector<std::string> take() {
    for (std::size_t id = 0; id < used_.size(); ++id)
      if (!used_[id]) fail(ErrorKind::data, "{}: no token has the number {}", source_, id);
    return std::move(tokens_);
  }

 private:
  std::string source_;
  std::vector<std::string> tokens_;
  std::vector<bool> used_;
};

Tokenizer::Merge parse_merge(const std::string& line, const std::string& source) {
  const std::size_t space = line.find(' ');
  if (space == 0 || space == std::string::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string::npos)
    fail(ErrorKind::data, "{}: '{}' is not a merge: expected two tokens with one space between", source, line);
  return {token_bytes(line.substr(0, space)), token_bytes(line.substr(space + 1))};
}

Tokenizer load_pair(const fs::path& vocab, const fs::path& merges) {
  Vocabulary vocabulary(vocab.string());
  vocabulary.add_all(parse_json(vocab));
  std::vector<Tokenizer::Merge> list;
  const std::string text = read_text(merges, kMostFileBytes);
  for (const std::string_view part : lines_of(text)) {
    const std::string line(part);
    if (line.empty() || (list.empty() && line.starts_with("#version"))) continue;
    list.push_back(parse_merge(line, merges.string()));
  }
  return {vocabulary.take(), list, merges.string()};
}

/// Throws data if tokenizer.json asks for something that Tokenizer does not do.
void check_pipeline(const Json& file, const std::string& source) {
  const auto type_of = [&](const Json& of, const char* key) -> std::string {
    if (!of.contains(key) || of.at(key).is_null()) return "none";
    const Json& part = of.at(key);
    return part.is_object() ? part.value("type", "unnamed") : "unnamed";
  };
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::data, "{}: {}; only GPT-2's byte-level BPE is read", source, what);
  };
  if (type_of(file, "model") != "BPE" && type_of(file, "model") != "unnamed")
    refuse("its model is " + type_of(file, "model"));
  if (type_of(file, "normalizer") != "none") refuse("it has a normalizer, " + type_of(file, "normalizer"));
  if (type_of(file, "pre_tokenizer") != "ByteLevel") refuse("its pre_tokenizer is " + type_of(file, "pre_tokenizer"));
  const Json& pre = file.at("pre_tokenizer");
  if (pre.value("add_prefix_space", false)) refuse("it adds a space before the text");
  if (!pre.value("use_regex", true)) refuse("it does not split by GPT-2's pattern");
  const Json& model = file.at("model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.contains(key) && model.at(key).is_string() && !model.at(key).get<std::string>().empty())
      refuse(fmt::format("it has a {}", key));
  for (const char* key : {"byte_fallback", "ignore_merges"})
    if (model.value(key, false)) refuse(fmt::format("it has {}", key));
  if (model.contains("dropout") && model.at("dropout").is_number() && model.at("dropout").get<double>() != 0)
    refuse("it drops merges at random");
}

Tokenizer load_json(const fs::path& path) {
  const std::string source = path.string();
  const Json file = parse_json(path);
  try {
    check_pipeline(file, source);
    const Json& model = file.at("model");
    Vocabulary vocabulary(source);
    vocabulary.add_all(model.at("vocab"));
    if (file.contains("added_tokens"))
      for (const Json& token : file.at("added_tokens")) {
        const auto text = token.at("content").get<std::string>();
        if (text != kEndOfText)
          fail(ErrorKind::data, "{}: it adds the token '{}'; only {} is read", source, text, kEndOfText);
        vocabulary.add(text, token.at("id"), true);
      }
    std::vector<Tokenizer::Merge> merges;
    for (const Json& merge : model.at("merges")) {
      if (merge.is_string()) {
        merges.push_back(parse_merge(merge.get<std::string>(), source));
      } else {
        const auto both = merge.get<std::vector<std::string>>();
        if (both.size() != 2) fail(ErrorKind::data, "{}: a merge of {} tokens", source, both.size());
        merges.emplace_back(token_bytes(both[0]), token_bytes(both[1]));
      }
    }
    return {vocabulary.take(), merges, source};
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "{}: {}", source, error.what());
  }
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += utf8(code_of_byte(static_cast<unsigned char>(c)));
  return text;
}

std::optional<std::string> from_printable(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Character next = character_at(text, at);
    at += next.bytes;
    if (next.bytes == 1 && next.code >= 0x80) return std::nullopt;  // not UTF-8
    if (next.code < 256) {
      if (!is_printable(next.code)) return std::nullopt;
      bytes += static_cast<char>(next.code);
      continue;
    }
    std::uint32_t left = next.code - 256;  // among the bytes that are not printable
    std::uint32_t byte = 0;
    while (byte < 256 && (is_printable(byte) || left-- > 0)) ++byte;
    if (byte == 256) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

Tokenizer Tokenizer::load(const std::string& path) {
  const fs::path given(path);
  std::error_code ignored;
  if (is_missing(path)) fail(ErrorKind::data, "{}: no such file or folder", path);
  if (!fs::is_directory(given, ignored)) return load_json(given);
  const fs::path vocab = given / "vocab.json";
  const fs::path merges = given / "merges.txt";
  if (fs::exists(vocab, ignored) && fs::exists(merges, ignored)) return load_pair(vocab, merges);
  if (fs::exists(given / "tokenizer.json", ignored)) return load_json(given / "tokenizer.json");
  fail(ErrorKind::data, "{}: has neither vocab.json with merges.txt nor tokenizer.json", path);
}

void Tokenizer::save(const std::string& folder) const {
  make_folder(folder);
  std::string vocab = "{";
  for (std::uint32_t id = 0; id < size(); ++id) {
    const std::string text = end_of_text_ == id ? std::string(kEndOfText) : printable(tokens_[id]);
    vocab += fmt::format("{}{}: {}", id == 0 ? "" : ", ", Json(text).dump(), id);
  }
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] : merge_list_) merges += printable(left) + ' ' + printable(right) + '\n';
  write_whole((fs::path(folder) / "vocab.json").string(), vocab + "}\n");
  write_whole((fs::path(folder) / "merges.txt").string(), merges);
}

}  // namespace psring::worker
