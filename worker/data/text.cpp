#include <algorithm>
#include <array>
#include <utility>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/text.h>
#include <psring/worker/data/tokenizer/tokenizer_note.h>

namespace psring::worker {
namespace {

/// A file of tokens, by position.
class TokenFile {
 public:
  TokenFile(const std::string& path, TokenFormat format, std::size_t vocab)
      : file_(path), width_(format == TokenFormat::bytes ? 1 : 2), vocab_(vocab) {
    if (file_.size_bytes() % width_ != 0)
      fail(ErrorKind::data, "{}: {} bytes are not a whole number of 16-bit tokens", path, file_.size_bytes());
  }
  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return file_.size_bytes() / width_; }
  std::size_t vocab() const { return vocab_; }
  std::string fingerprint() const { return fingerprint_of(file_); }
  /// Returns the number of different tokens that the format can hold.
  std::size_t values() const { return std::size_t{1} << (8 * width_); }

  /// Calls each(i, token) for the tokens first + i, i = 0 … count - 1. Throws data if a token is not below vocab.
  template <class Each>
  void for_each(std::uint64_t first, std::uint64_t count, Each&& each) const {
    std::array<std::byte, 8192> buffer;
    const std::uint64_t most = buffer.size() / width_;
    for (std::uint64_t done = 0; done < count;) {
      const std::size_t now = std::min(most, count - done);
      file_.read((first + done) * width_, std::span(buffer).first(now * width_));
      for (std::size_t i = 0; i < now; ++i) {
        auto token = std::to_integer<std::uint32_t>(buffer[i * width_]);
        if (width_ == 2) token |= std::to_integer<std::uint32_t>(buffer[i * 2 + 1]) << 8;
        if (token >= vocab_)
          fail(ErrorKind::data, "{}: token {} at position {} is not below {}, the vocabulary", path(), token,
               first + done + i, vocab_);
        each(done + i, token);
      }
      done += now;
    }
  }

 private:
  InputFile file_;
  std::size_t width_;
  std::size_t vocab_;
};

/// The samples [first, first + size) of a token file.
class TokenDataset final : public Dataset {
 public:
  TokenDataset(std::shared_ptr<const TokenFile> file, std::size_t context, std::size_t first, std::size_t size)
      : file_(std::move(file)), context_(context), first_(first), size_(size) {}

  std::size_t size() const override { return size_; }
  std::size_t input_cols() const override { return context_; }
  std::size_t targets_per_sample() const override { return context_; }
  std::size_t classes() const override { return std::min(file_->vocab(), file_->values()); }
  bool tokens() const override { return true; }

  void read(std::size_t index, const SampleMemory& to) const override {
    check(index < size_ && to.input.size() == context_ && to.classes.size() == context_, "read of sample {} of {}",
          index, size_);
    file_->for_each((first_ + index) * context_, context_ + 1, [&](std::uint64_t i, std::uint32_t token) {
      if (i < context_) to.input[i] = static_cast<float>(token);
      if (i > 0) to.classes[i - 1] = static_cast<std::int32_t>(token);
    });
  }

 private:
  std::shared_ptr<const TokenFile> file_;  ///< shared: both splits read it, and either may outlive the other
  std::size_t context_;
  std::size_t first_;
  std::size_t size_;
};

}  // namespace

DataSplit load_tokens(const std::string& path, TokenFormat format, std::size_t context, std::size_t vocab) {
  check(context > 0 && vocab > 0, "tokens at context {}, vocabulary {}", context, vocab);
  const auto file = std::make_shared<const TokenFile>(path, format, vocab);
  const std::uint64_t samples = file->size() == 0 ? 0 : (file->size() - 1) / context;
  if (samples == 0)
    fail(ErrorKind::data, "{}: {} tokens are too short a text for a context of {}, which takes {}", path, file->size(),
         context, context + 1);
  if (vocab < file->values()) file->for_each(0, file->size(), [](std::uint64_t, std::uint32_t) {});
  const std::size_t held_out = samples / 20;
  DataSplit split;
  split.train = std::make_unique<TokenDataset>(file, context, 0, samples - held_out);
  if (held_out > 0) split.test = std::make_unique<TokenDataset>(file, context, samples - held_out, held_out);
  split.fingerprint = [file] { return file->fingerprint(); };
  split.tokenizer = format == TokenFormat::bytes ? "bytes" : tokenizer_note(path);
  return split;
}

}  // namespace psring::worker
