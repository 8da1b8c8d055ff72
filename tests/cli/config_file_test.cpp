#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/cli/options/job_flags.h>
#include <psring/cli/options/parse.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::cli {
namespace {

/// A program with one subcommand that takes a job's options, as psring itself.
struct Program {
  CommandLine line{"program"};
  options::Given given;

  Program() { add_job_flags(line.program().add_command("train", ""), given); }
  JobOptions job() const { return options::job_of(given); }
  void parse(std::vector<std::string> words) {
    words.insert(words.begin(), {"program", "train"});
    line.run(words, [] { return 0; });
  }
};

ErrorKind kind_of(const std::string& text, const std::string& file) {
  test::write_file(file, text);
  Program program;
  try {
    program.parse({"--config", file});
  } catch (const Error& error) {
    CHECK_THAT(std::string(error.what()), Catch::Contains(file));
    return error.kind();
  }
  FAIL("taken: " << text);
  return ErrorKind::bug;
}

/// The line that a file of this text leads to, of parsing or of `body`.
std::string line_of(
    const std::string& text, const std::function<int()>& body = [] { return 0; }) {
  const test::TemporaryFolder folder;
  test::write_file(folder.file("job.toml"), text);
  Program program;
  try {
    program.line.run({"program", "train", "--config", folder.file("job.toml"), "--seed", "1"}, body);
  } catch (const Error& error) {
    const std::string line = error.what();
    CHECK(line.starts_with("--config " + folder.file("job.toml")));
    return line.substr(line.find("job.toml"));
  }
  return "taken";
}

/// The line that these words lead to.
std::string line_of_words(const std::vector<std::string>& words) {
  Program program;
  try {
    program.parse(words);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "taken";
}

TEST_CASE("a configuration file gives a subcommand's flags, and the command line wins") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("job.toml");
  test::write_file(file, "servers = 3\nmodel = \"mlp:4-2\"\nlr = 0.5\nnesterov = true\nsteps = 7\n");
  Program program;
  program.parse({"--steps", "9", "--config", file, "--workers", "4"});
  CHECK(program.given["servers"] == "3");
  CHECK(program.job().workers == 4);
  CHECK(program.job().model == "mlp:4-2");
  CHECK(program.job().lr == 0.5);
  CHECK(program.job().nesterov);
  CHECK(program.job().steps == 9);
}

TEST_CASE("values of a configuration file may be quoted, bare, lists, and commented on") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("job.toml");
  test::write_file(file,
                   "# a job\n\n  servers=3  # three\r\nmodel = 'mlp:4-2'\ndata = \"text:a # b.txt\"\n"
                   "betas = [0.8, 0.9]  # two\ninit = a b.safetensors");
  Program program;
  program.parse({"--config=" + file});
  CHECK(program.given["servers"] == "3");
  CHECK(program.job().model == "mlp:4-2");
  CHECK(program.job().data == "text:a # b.txt");
  CHECK(program.given["betas"] == "0.8,0.9");
  CHECK(program.job().init == "a b.safetensors");
}

TEST_CASE("errors of a configuration file name the line") {
  CHECK(line_of("lr = 0.1\n\nserverz = 3\n") == "job.toml, line 3: unknown key 'serverz'");
  CHECK(line_of("lr = 0.1\nlr = 0.2\n") == "job.toml, line 2: key 'lr' is given twice, in line 1 as well");
  CHECK(line_of("lr = fast\n") == "job.toml, line 1: --lr: expected a number, got 'fast'");
  CHECK(line_of("model = \"\"\n").starts_with("job.toml, line 1: --model: expected a value"));
  for (const char* bad : {"[train]", "lr", "lr =", "= 3", "lr = \"0.1", "lr = 0.1\"", "betas = [0.1",
                          "betas = [0.1 , ]", "model = 'a' b", "lr = # 0.1"})
    CHECK(line_of(std::string("seed = 1\n") + bad) ==
          fmt::format("job.toml, line 2: expected KEY = VALUE, got '{}'", bad));
  const auto body = [] { return fail(ErrorKind::usage, "--workers: expected a number > 0"), 0; };
  CHECK(line_of("workers = 0\n", body) == "job.toml, line 1: --workers: expected a number > 0");
}

TEST_CASE("errors of the command line are ours") {
  CHECK(line_of_words({"--workers", "2", "--workers", "3"}) == "--workers: given twice");
  CHECK(line_of_words({"--workers"}) == "--workers: expected a value");
  CHECK(line_of_words({"--init", ""}) == "--init: expected a value, got ''");
  CHECK(line_of_words({"--init="}) == "--init: expected a value, got ''");
  CHECK(line_of_words({"--nesterov=banana"}) == "--nesterov: cannot be 'banana'");
  CHECK(line_of_words({"--banana", "2", "--steps", "2"}) == "unknown argument '--banana'; --help lists all options");
}

TEST_CASE("a configuration file that says what no flag does is refused") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("job.toml");
  CHECK(kind_of("serverz = 3\n", file) == ErrorKind::usage);
  CHECK(kind_of("[train]\nservers = 3\n", file) == ErrorKind::usage);
  Program program;
  for (const std::string& none : {folder.file("none.toml"), folder.path()}) {
    try {
      program.parse({"--config", none});
      FAIL("taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      CHECK_THAT(error.what(), Catch::Contains("--config") && Catch::Contains(none));
    }
  }
}

}  // namespace
}  // namespace psring::cli
