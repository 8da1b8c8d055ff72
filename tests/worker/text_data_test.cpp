// Texts and token files are cut into samples, and held against the vocabulary.
#include <catch2/catch.hpp>

#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/worker/data_samples.h>
#include <psring/worker/data/text.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;

TEST_CASE("texts are cut into samples, the last twentieth held out") {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  const std::string path = write_file(folder.file("text"), text);
  const auto token = [&](std::size_t i) { return std::int32_t{static_cast<std::uint8_t>(text[i])}; };

  const DataSplit split = load_tokens(path, TokenFormat::bytes, 4, 256);
  CHECK(split.train->size() == 47);  // floor(199 / 4) = 49, of them 2 held out
  REQUIRE(split.test);
  CHECK(split.test->size() == 2);
  CHECK(split.train->tokens());
  CHECK(split.train->classes() == 256);
  for (std::size_t i = 0; i < 49; ++i) {
    const Sample s = i < 47 ? sample(*split.train, i) : sample(*split.test, i - 47);
    for (std::size_t j = 0; j < 4; ++j) {
      CHECK(s.input[j] == static_cast<float>(token(i * 4 + j)));
      CHECK(s.targets[j] == token(i * 4 + j + 1));
    }
  }
  CHECK(load_tokens(path, TokenFormat::bytes, 10, 256).test == nullptr);  // 19 samples
  CHECK(load_tokens(path, TokenFormat::bytes, 199, 256).train->size() == 1);
  refuses([&] { load_tokens(path, TokenFormat::bytes, 200, 256); }, path, "too short");
  refuses([&] { load_tokens(write_file(folder.file("none"), ""), TokenFormat::bytes, 1, 256); }, "none", "too short");
  refuses([&] { load_tokens(folder.file("absent"), TokenFormat::bytes, 1, 256); }, "absent", "no such file");
  refuses([&] { load_tokens(folder.path(), TokenFormat::bytes, 1, 256); }, folder.path(), "not a regular file");
  refuses([&] { load_tokens(path, TokenFormat::bytes, 4, 200); }, path, "token 203 at position 29");
}

TEST_CASE("a context longer than one read is whole") {
  TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 30000; ++i) bytes += {static_cast<char>(i % 256), static_cast<char>(i / 256)};
  const DataSplit split = load_tokens(write_file(folder.file("long"), bytes), TokenFormat::u16, 29999, 50257);
  const Sample s = sample(*split.train, 0);
  bool ascending = true;
  for (int i = 0; i < 29999; ++i) ascending = ascending && s.input[i] == static_cast<float>(i) && s.targets[i] == i + 1;
  CHECK(ascending);
}

TEST_CASE("16-bit tokens are held against the vocabulary") {
  TemporaryFolder folder;
  const std::string path = write_file(folder.file("tokens"), std::string("\1\0\2\0\3\1\4\0\xFF\xFF", 10));
  const DataSplit split = load_tokens(path, TokenFormat::u16, 2, 65536);
  CHECK(split.train->size() == 2);
  CHECK(sample(*split.train, 1) == Sample{{259, 4}, {4, 65535}});
  refuses([&] { load_tokens(path, TokenFormat::u16, 2, 65535); }, path, "token 65535 at position 4");
  refuses([&] { load_tokens(path, TokenFormat::u16, 2, 259); }, path, "token 259 at position 2");
  refuses([&] { load_tokens(write_file(path, "abc"), TokenFormat::u16, 1, 65536); }, path, "3 bytes");

  write_file(path, "");  // it shrinks while it is open
  refuses([&] { sample(*split.train, 0); }, path, "truncated");
}
