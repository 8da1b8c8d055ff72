// Byte-pair encoding against an independent implementation in Python, and files that are none.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/json.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/data/tokenizer/pretokenize.h>
#include <psring/worker/data/tokenizer/tokenizer.h>

using namespace psring;
using namespace psring::worker;

namespace {

namespace fs = std::filesystem;

struct Folder : test::TemporaryFolder {
  void write(const std::string& name, const std::string& text) const { test::write_file(file(name), text); }
  std::string read(const std::string& name) const { return test::read_file(file(name)); }
};

void append_utf8(std::string& text, std::uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

/// Text that meets every branch of the pattern: words of a few scripts, digits, marks, runs of all kinds of spaces,
/// contractions, and code points from everywhere.
std::string wild_text(std::uint32_t stream, std::size_t parts) {
  static const char* const kParts[] = {"the",
                                       " the",
                                       "ing",
                                       "'s",
                                       "'t",
                                       "'re",
                                       "'ll",
                                       "'d",
                                       "'",
                                       "''s",
                                       " '",
                                       "'S",
                                       " ",
                                       "  ",
                                       "   ",
                                       "\n",
                                       "\n\n",
                                       "\t",
                                       " \n",
                                       "\r\n",
                                       "1",
                                       "23",
                                       "456",
                                       "½",
                                       "Ⅷ",
                                       "٣",
                                       "é",
                                       "ñandú",
                                       "слово",
                                       "中文",
                                       "漢字。",
                                       "日本",
                                       "한국",
                                       "ไทย",
                                       "नमस्ते",
                                       "שלום",
                                       "العربية",
                                       "🙂",
                                       "👩‍👩‍👧",
                                       "…",
                                       "—",
                                       "!!",
                                       "?!",
                                       "$",
                                       "+",
                                       "a\u0301",
                                       "\u00a0",
                                       "\u3000",
                                       "\u2003",
                                       "\u200b",
                                       "\u0085",
                                       "\u1680",
                                       "\u2028",
                                       "\ufeff",
                                       "<|endoftext|>",
                                       "<|end",
                                       "aaaa",
                                       "abab"};
  const CounterRng rng({.seed = 21, .tensor = stream});
  std::string text;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::uint32_t bits = rng.bits(2 * i);
    if (bits % 8 == 0) {
      std::uint32_t code = rng.bits(2 * i + 1) % (bits % 16 == 0 ? 0x110000U : 0x3000U);
      if (code >= 0xD800 && code < 0xE000) code -= 0x800;
      append_utf8(text, code);
    } else {
      text += kParts[rng.bits(2 * i + 1) % std::size(kParts)];
    }
  }
  return text;
}

/// Returns false if Python or its module is not there.
bool run_reference(const std::string& arguments) {
  const int status = std::system(fmt::format("/usr/bin/python3 '{}' {}", PSRING_BPE_REFERENCE, arguments).c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
    std::puts("SKIPPED: /usr/bin/python3 with the module regex is not there");
    std::fflush(stdout);
    return false;
  }
  REQUIRE(status == 0);
  return true;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  pretokenize(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  FAIL("no error");
  return "";
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

TEST_CASE("words are the matches of GPT-2's pattern") {
  CHECK(words_of("I'll say  it's 42!!\n\n end ") ==
        std::vector<std::string>{"I", "'ll", " say", " ", " it", "'s", " 42", "!!", "\n\n", " end", " "});
  CHECK(words_of("") == std::vector<std::string>{});
  CHECK(words_of("\xFF\xFE"
                 "a") == std::vector<std::string>{"\xFF\xFE", "a"});  // bytes that are no characters

  const Folder folder;
  std::string text = wild_text(1, 20000);
  for (std::uint32_t code = 0; code < 0x110000; ++code) {  // every code point, between letters
    if (code >= 0xD800 && code < 0xE000) continue;
    text += code % 3 == 0 ? "a" : code % 3 == 1 ? "1" : "!";
    append_utf8(text, code);
  }
  folder.write("text", text);
  if (!run_reference(fmt::format("words '{}' '{}'", folder.file("text"), folder.file("words")))) return;
  const auto expected = Json::parse(folder.read("words")).get<std::vector<std::string>>();
  const std::vector<std::string> words = words_of(text);
  REQUIRE(words.size() == expected.size());
  for (std::size_t i = 0; i < words.size(); ++i)
    if (hex(words[i]) != expected[i]) FAIL("word " << i << ": " << hex(words[i]) << ", expected " << expected[i]);
}

TEST_CASE("training and encoding agree with the reference, and decoding gives the text back") {
  const Folder folder;
  const std::string text = wild_text(2, 6000);
  folder.write("text", text);
  Tokenizer trained = train_tokenizer(text, 700);
  trained.save(fs::path(folder.path()).string());
  if (!run_reference(fmt::format("train '{}' 700 '{}'", folder.file("text"), folder.file("trained")))) return;
  const Json expected = Json::parse(folder.read("trained"));
  CHECK(trained.size() == expected[0].size());
  for (std::uint32_t id = 0; id < trained.size(); ++id)
    if (printable(trained.token(id)) != expected[0][id].get<std::string>()) FAIL("token " << id);
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : expected[1])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  CHECK(folder.read("merges.txt") == merges);

  Tokenizer loaded = Tokenizer::load(fs::path(folder.path()).string());
  for (std::uint32_t stream = 3; stream < 8; ++stream) {
    const std::string other = wild_text(stream, 4000);
    folder.write("other", other);
    REQUIRE(run_reference(fmt::format("encode '{}' '{}' '{}' '{}'", folder.file("vocab.json"),
                                      folder.file("merges.txt"), folder.file("other"), folder.file("tokens"))));
    const auto tokens = loaded.encode(other);
    CHECK(tokens == Json::parse(folder.read("tokens")).get<std::vector<std::uint32_t>>());
    CHECK(tokens == trained.encode(other));
    CHECK(loaded.decode(tokens) == other);
  }
}

TEST_CASE("every sequence of bytes has an encoding") {
  Tokenizer trained = train_tokenizer(wild_text(2, 3000), 500);
  const CounterRng rng({.seed = 4});
  for (std::size_t round = 0; round < 50; ++round) {
    std::string bytes;
    for (std::size_t i = 0; i < 300; ++i) bytes += static_cast<char>(rng.bits(round * 300 + i));
    CHECK(trained.decode(trained.encode(bytes)) == bytes);
    CHECK(Tokenizer::bytes().decode(Tokenizer::bytes().encode(bytes)) == bytes);
  }
}

TEST_CASE("a long word takes no quadratic time") {
  Tokenizer trained = train_tokenizer(wild_text(2, 3000), 500);
  std::string word;
  for (std::size_t i = 0; i < 2'000'000; ++i) word += static_cast<char>('a' + i * i % 7);
  CHECK(trained.decode(trained.encode(word)) == word);
}

TEST_CASE("merges run in rounds: all places of a pair, before pairs that it makes") {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"bc", "ab", "abc", "abca"}) tokens.emplace_back(text);
  // abc can be made of ab + c or of a + bc; abc + a comes before a + bc.
  Tokenizer tokenizer(tokens, {{"b", "c"}, {"ab", "c"}, {"abc", "a"}, {"a", "bc"}}, "test");
  CHECK(tokenizer.encode("abcabc") == std::vector<std::uint32_t>{258, 258});
}

TEST_CASE("tokenizer.json is read, in both spellings of merges") {
  const Folder folder;
  Tokenizer trained = train_tokenizer("the cat and the hat and the bat", 264);
  trained.save(fs::path(folder.path()).string());
  const std::string vocab = folder.read("vocab.json");
  const std::string merges = folder.read("merges.txt");
  std::string plain;
  std::string pairs;
  for (std::size_t at = merges.find('\n') + 1; at < merges.size();) {
    const std::size_t end = merges.find('\n', at);
    const std::string line = merges.substr(at, end - at);
    const std::size_t space = line.find(' ');
    plain += (plain.empty() ? "" : ", ") + Json(line).dump();
    pairs += (pairs.empty() ? "" : ", ") + std::string("[") + Json(line.substr(0, space)).dump() + ", " +
             Json(line.substr(space + 1)).dump() + "]";
    at = end + 1;
  }
  const auto document = [&](const std::string& list, const std::string& pre, const std::string& more = "") {
    return fmt::format(R"({{"added_tokens": [{{"id": {}, "content": "<|endoftext|>"}}], "normalizer": null,
        "pre_tokenizer": {{"type": "ByteLevel", {}}}, {} "model": {{"type": "BPE", "vocab": {}, "merges": [{}]}}}})",
                       trained.size() - 1, pre, more, vocab, list);
  };
  const std::string text = "the fat cat <|endoftext|>and the bat";
  for (const std::string& list : {plain, pairs}) {
    folder.write("tokenizer.json", document(list, R"("add_prefix_space": false, "use_regex": true)"));
    Tokenizer loaded = Tokenizer::load(folder.file("tokenizer.json"));
    CHECK(loaded.encode(text) == trained.encode(text));
    CHECK(loaded.end_of_text() == trained.end_of_text());
  }
  folder.write("tokenizer.json", document(plain, R"("add_prefix_space": true)"));
  CHECK(message_of([&] { Tokenizer::load(folder.file("tokenizer.json")); }).find("adds a space") != std::string::npos);
  folder.write("tokenizer.json", document(plain, R"("use_regex": false)"));
  CHECK(message_of([&] { Tokenizer::load(folder.file("tokenizer.json")); }).find("pattern") != std::string::npos);
}

TEST_CASE("files that are no tokenizer are refused in one line") {
  const Folder folder;
  const auto error = [&] { return message_of([&] { Tokenizer::load(fs::path(folder.path()).string()); }); };
  CHECK(error().find("has neither vocab.json") != std::string::npos);
  train_tokenizer("the cat and the hat", 260).save(fs::path(folder.path()).string());
  const std::string vocab = folder.read("vocab.json");
  const std::string merges = folder.read("merges.txt");
  folder.write("merges.txt", merges + "x\n");
  CHECK(error().find("is not a merge") != std::string::npos);
  folder.write("merges.txt", merges + "q z\n");
  CHECK(error().find("needs the token 'qz'") != std::string::npos);
  folder.write("merges.txt", merges);
  for (const char* text : {"", "[]", "{", "{\"a\": -1}", "{\"a\": 1.5}", "{\"a\": 99999999999}", "{\"!\": 5}"}) {
    folder.write("vocab.json", text);
    CHECK(!error().empty());
  }
  folder.write("vocab.json", "{\"!\": 0, \"\\\"\": 0}");
  CHECK(error().find("have the same number 0") != std::string::npos);
  folder.write("tokenizer.json", R"({"model": {"type": "Unigram"}})");
  CHECK(message_of([&] { Tokenizer::load(folder.file("tokenizer.json")); }).find("Unigram") != std::string::npos);
  CHECK(message_of([&] { Tokenizer::load(folder.file("none")); }).find("no such file") != std::string::npos);
}

TEST_CASE("bytes and their printable characters") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(from_printable(printable(all)) == all);
  CHECK(printable(" a\n") == "Ġa\u010a");
  CHECK(!from_printable("a b"));
  CHECK(!from_printable("中"));
  CHECK(!from_printable("\xFF"));
}
