// psring tokenize: text to the 16-bit tokens that --data tokens:FILE reads, and back; and learning a vocabulary.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/commands.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/data/tokenizer/tokenizer_note.h>

namespace psring::cli {
namespace {

using worker::Tokenizer;

constexpr std::size_t kMostTokens = 1 << 16;

struct TokenizeFlags {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string out;
  std::size_t vocab = 0;
  bool train = false;
  bool decode = false;
};

int train(const TokenizeFlags& flags) {
  if (!flags.tokenizer.empty()) fail(ErrorKind::usage, "--tokenizer: means nothing with --train");
  if (flags.vocab == 0) fail(ErrorKind::usage, "--train: needs --vocab, the number of tokens to learn");
  if (flags.vocab > kMostTokens)
    fail(ErrorKind::usage, "--vocab {}: tokens are stored in 16 bits, so at most {}", flags.vocab, kMostTokens);
  std::string text;
  for (const std::string& file : flags.files) {
    if (!text.empty()) text += worker::kEndOfText;  // no word goes on from one file to the next
    text += read_stream(file);
  }
  const Tokenizer tokenizer = worker::train_tokenizer(text, flags.vocab);
  tokenizer.save(flags.out);
  out::print("{}: {} tokens learned from {} bytes\n", flags.out, tokenizer.size(), text.size());
  if (tokenizer.size() < flags.vocab) out::print("no other pair of tokens occurs twice in the text\n");
  return 0;
}

void check_width(const Tokenizer& tokenizer) {
  if (tokenizer.size() > kMostTokens)
    fail(ErrorKind::data, "a vocabulary of {} tokens does not fit into 16 bits, which hold {}", tokenizer.size(),
         kMostTokens);
}

int decode(const TokenizeFlags& flags, const Tokenizer& tokenizer) {
  std::string text;
  for (const std::string& path : flags.files) {
    const std::string bytes = read_stream(path);
    if (bytes.size() % 2 != 0)
      fail(ErrorKind::data, "{}: {} bytes are not a whole number of 16-bit tokens", path, bytes.size());
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      const auto byte = [&](std::size_t at) { return std::size_t{static_cast<unsigned char>(bytes[at])}; };
      const std::size_t token = byte(i) | byte(i + 1) << 8;
      if (token >= tokenizer.size())
        fail(ErrorKind::data, "{}: token {} at position {} is not below {}, the vocabulary", path, token, i / 2,
             tokenizer.size());
      text += tokenizer.token(static_cast<std::uint32_t>(token));
    }
  }
  if (!flags.out.empty()) {
    write_whole(flags.out, text);
  } else {
    out::text(text);
  }
  return 0;
}

int encode(const TokenizeFlags& flags, Tokenizer& tokenizer) {
  std::string bytes;
  std::size_t text_bytes = 0;
  const auto append = [&bytes](std::uint32_t token) {
    bytes += static_cast<char>(token & 0xFF);
    bytes += static_cast<char>(token >> 8);
  };
  for (std::size_t i = 0; i < flags.files.size(); ++i) {
    const std::string text = read_stream(flags.files[i]);
    text_bytes += text.size();
    if (i > 0 && tokenizer.end_of_text()) append(*tokenizer.end_of_text());
    for (const std::uint32_t token : tokenizer.encode(text)) append(token);
  }
  write_whole(flags.out, bytes);
  if (std::filesystem::is_regular_file(flags.out)) worker::write_tokenizer_note(flags.out, tokenizer);
  const std::size_t tokens = bytes.size() / 2;
  out::print("{}: {} tokens from {} bytes", flags.out, tokens, text_bytes);
  if (tokens > 0) out::print(", {:.2f} bytes a token", static_cast<double>(text_bytes) / static_cast<double>(tokens));
  out::print("\ntrain with --data tokens:{} --model gpt:...,vocab={}\n", flags.out, tokenizer.size());
  return 0;
}

int tokenize(const TokenizeFlags& flags) {
  if (flags.train && flags.decode) fail(ErrorKind::usage, "--train and --decode: give one of them");
  if (flags.out.empty() && !flags.decode) fail(ErrorKind::usage, "--out: is required");
  if (flags.train) return train(flags);
  if (flags.vocab > 0) fail(ErrorKind::usage, "--vocab: means nothing without --train");
  Tokenizer tokenizer = flags.tokenizer.empty() ? Tokenizer::bytes() : Tokenizer::load(flags.tokenizer);
  check_width(tokenizer);
  return flags.decode ? decode(flags, tokenizer) : encode(flags, tokenizer);
}

}  // namespace

Command add_tokenize(const Flags& program) {
  const Flags command = program.add_command("tokenize", "turn text into tokens for training, or learn a vocabulary");
  auto flags = std::make_shared<TokenizeFlags>();  // shared: the parser fills it in, the command reads it
  command.add("FILE", flags->files, "texts; with --decode, files of tokens").show_value("FILE").require();
  command
      .add("--tokenizer", flags->tokenizer,
           "folder with vocab.json and merges.txt, or tokenizer.json; without, each byte is a token")
      .show_value("FILE");
  command.add("--out", flags->out, "file of 16-bit tokens to write; with --train, the folder; with --decode, the text")
      .show_value("FILE");
  command.add_switch("--train", flags->train,
                     "learn byte-pair merges from the texts, and write vocab.json, merges.txt");
  command.add("--vocab", flags->vocab, "with --train: number of tokens, with 256 bytes and <|endoftext|>");
  command.add_switch("--decode", flags->decode, "turn tokens into text");
  return [flags](const Invocation&) { return tokenize(*flags); };
}

}  // namespace psring::cli
