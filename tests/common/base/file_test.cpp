#include <algorithm>
#include <filesystem>
#include <thread>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <psring/common/base/system/fd.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using Catch::Contains;
using psring::test::read_file;
using psring::test::TemporaryFolder;
using psring::test::write_file;

namespace {

std::string fifo(const TemporaryFolder& folder) {
  const std::string path = folder.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  return path;
}

std::string socket_file(const TemporaryFolder& folder) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder.file("socket");
  REQUIRE(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return path;
}

std::vector<std::string> lines_in(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("readers say what a path is if it is no regular file, and never wait") {
  const TemporaryFolder folder;
  const std::string pipe = fifo(folder);
  const std::string socket = socket_file(folder);
  const std::string link = folder.file("link");
  std::filesystem::create_symlink("pipe", link);
  const auto refused = [](const std::string& path, const std::string& why) {
    CAPTURE(path);
    CHECK_THROWS_WITH(open_regular(path), path + ": " + why);
    CHECK_THROWS_WITH(read_whole(path), path + ": " + why);
    CHECK_THROWS_WITH(read_text(path), path + ": " + why);
    CHECK_THROWS_WITH(InputFile(path), path + ": " + why);
    CHECK_THROWS_WITH(LineReader(path), path + ": " + why);
  };
  refused(pipe, "is a pipe, not a regular file");
  refused(link, "is a pipe, not a regular file");
  refused(folder.path(), "is a folder, not a regular file");
  refused(socket, "is a socket, not a regular file");
  refused("/dev/null", "is a device, not a regular file");
  refused(folder.file("none"), "no such file");
  CHECK_FALSE(read_whole_if_present(folder.file("none")));
  CHECK_THROWS_WITH(read_whole_if_present(pipe), Contains("is a pipe"));
  CHECK_THROWS_WITH(read_stream(folder.path()), Contains("is a folder, not a regular file or a pipe"));
  CHECK_THROWS_WITH(read_stream("/dev/zero"), Contains("is a device"));
}

TEST_CASE("writers refuse a pipe that nobody reads, and never wait") {
  const TemporaryFolder folder;
  const std::string pipe = fifo(folder);
  CHECK_THROWS_WITH(OutputFile(pipe), pipe + ": cannot write: nobody reads this pipe");
  CHECK_THROWS_WITH(write_whole(pipe, "text"), pipe + ": cannot write: nobody reads this pipe");
  std::string read;
  std::jthread reader([&] { read = read_stream(pipe); });
  const std::string text(300'000, 'x');  // more than a pipe holds: the writer waits for its reader
  for (bool begun = false; !begun;) {
    try {
      write_whole(pipe, text);
      begun = true;
    } catch (const Error&) {  // the reader has not opened the pipe yet
    }
  }
  reader.join();
  CHECK(read == text);
}

TEST_CASE("a file takes its name when it is whole") {
  TemporaryFolder folder;
  const std::string path = write_file(folder.file("f"), "old");
  const auto bytes = std::as_bytes(std::span("new", 3));
  {
    OutputFile lost(path);
    lost.write(bytes);
    CHECK(read_file(path) == "old");
  }
  CHECK(read_file(path) == "old");
  OutputFile kept(path);
  kept.write(bytes);
  kept.commit();
  CHECK(read_file(path) == "new");
  CHECK_THROWS_AS(kept.write(bytes), Error);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_THAT(test::error_of(ErrorKind::data, [&] { OutputFile(folder.file("no/such/f")); }),
             Contains("no/such/f") && Contains("cannot create") && !Contains("\n"));
}

TEST_CASE("a link or a pipe stays one when a file is written there") {
  TemporaryFolder folder;
  const auto bytes = std::as_bytes(std::span("new", 3));
  write_file(folder.file("target"), "a longer old text");
  std::filesystem::create_symlink("target", folder.file("link"));
  const std::string pipe = fifo(folder);
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto received = [&] {
    std::string text(16, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(reader.get(), text.data(), text.size()))));
    return text;
  };

  write_whole(folder.file("link"), "new");
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(read_file(folder.file("target")) == "new");
  write_whole(pipe, "whole");
  CHECK(received() == "whole");
  OutputFile out(pipe);
  out.write(bytes);
  out.commit();
  CHECK(received() == "new");
  OutputFile(pipe).write(bytes);  // not committed
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("a whole file is read through links, and from /proc, within a limit") {
  const TemporaryFolder folder;
  const std::string text(200'000, 'x');
  const std::string file = write_file(folder.file("file"), text);
  const std::string link = folder.file("link");
  std::filesystem::create_symlink("file", link);
  CHECK(read_whole(link) == text);
  CHECK(read_whole_if_present(file) == text);
  CHECK(read_stream(file, text.size()) == text);
  CHECK_THROWS_WITH(read_whole(file, text.size() - 1), Contains("has more than 199999 bytes"));
  const std::string sparse = write_file(folder.file("sparse"), "");
  std::filesystem::resize_file(sparse, std::uintmax_t{1} << 42);
  CHECK_THROWS_WITH(read_whole(sparse), Contains("has more than 17179869184 bytes"));
  CHECK_THROWS_WITH(lines_in(sparse), Contains("a line has more than 1073741824 bytes"));
  CHECK(read_whole(write_file(folder.file("empty"), "")).empty());
  CHECK_THAT(read_whole("/proc/self/status"), Contains("Name:"));  // whose size is 0
}

TEST_CASE("a stream waits for its writer, and ends when the last writer has closed it") {
  const TemporaryFolder folder;
  const std::string pipe = fifo(folder);
  const auto text = GENERATE(std::string(), std::string("first\nsecond\n"), std::string(300'000, 'y'));
  std::jthread writer([&] {
    const Fd fd(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));  // waits for the reader
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t put = ::write(fd.get(), text.data() + done, text.size() - done);
      if (put <= 0) return;
      done += static_cast<std::size_t>(put);
    }
  });
  CHECK(read_stream(pipe) == text);
}

TEST_CASE("a stream without a name ends if its writers have gone") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read(ends[0]);
  const auto text = GENERATE(std::string(), std::string("text"));
  {
    const Fd write(ends[1]);
    REQUIRE(::write(write.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  CHECK(read_stream("/proc/self/fd/" + std::to_string(read.get())) == text);
}

TEST_CASE("a list has one part more than separators") {
  CHECK(split("a,b,,c") == std::vector<std::string>{"a", "b", "", "c"});
  CHECK(split("a,") == std::vector<std::string>{"a", ""});
  CHECK(split("") == std::vector<std::string>{""});
  CHECK(split("a,b;c", ';') == std::vector<std::string>{"a,b", "c"});
}

TEST_CASE("text is plain without its byte-order mark and carriage returns") {
  CHECK(plain_text("\xEF\xBB\xBF"
                   "a\r\nb\r\n",
                   "f") == "a\nb\n");
  CHECK(plain_text("a\rb\r", "f") == "a\rb\r");
  CHECK(plain_text("", "f").empty());
  CHECK(plain_text("\r\n\r\n", "f") == "\n\n");
  CHECK_THROWS_WITH(plain_text("\xFF\xFEx", "f.csv"), "f.csv: is a text in UTF-16; save it as UTF-8");
  CHECK(lines_of("a\n\nb") == std::vector<std::string_view>{"a", "", "b"});
  CHECK(lines_of("a\n") == std::vector<std::string_view>{"a"});
  CHECK(lines_of("").empty());
}

TEST_CASE("a line reader gives the lines of the plain text, whatever the pieces") {
  const TemporaryFolder folder;
  const auto same = [&](const std::string& text) {
    const std::string file = write_file(folder.file("text"), text);
    const std::string plain = read_text(file);
    std::vector<std::string> expected;
    for (const std::string_view line : lines_of(plain)) expected.emplace_back(line);
    CHECK(lines_in(file) == expected);
  };
  same("");
  same("\xEF\xBB\xBF");
  same("a\r\nb\n\r\nc");
  for (const std::size_t length : {65533U, 65534U, 65535U, 65536U, 65537U}) {  // about the reader's piece
    same("\xEF\xBB\xBF" + std::string(length, 'x') + "\r\ny\r\n");
    same(std::string(length, 'x') + "\ny");
  }
  LineReader reader(write_file(folder.file("text"), "a\nb"));
  std::string line;
  REQUIRE(reader.next(line));
  CHECK(reader.had_end());
  REQUIRE(reader.next(line));
  CHECK_FALSE(reader.had_end());
  CHECK_FALSE(reader.next(line));
  LineReader none(folder.file("none"), LineReader::IfMissing::no_lines);
  CHECK_FALSE(none.next(line));
}
