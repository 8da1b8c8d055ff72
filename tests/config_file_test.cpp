#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>

#include <psring/cli/options.h>
#include <psring/common/base/error.h>
#include <psring/tests/support/temporary_folder.h>

namespace psring::cli {
namespace {

/// A program with one subcommand that takes a job's flags, as psring itself.
struct Program {
  CLI::App root{"program"};
  CLI::App* command = root.add_subcommand("train", "");
  JobFlags flags;

  Program() { add_job_flags(*command, flags); }
  void parse(std::vector<std::string> words) {
    std::vector<char*> argv;
    words.insert(words.begin(), {"program", "train"});
    for (std::string& word : words) argv.push_back(word.data());
    root.parse(static_cast<int>(argv.size()), argv.data());
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

TEST_CASE("a configuration file gives a subcommand's flags, and the command line wins") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("job.toml");
  test::write_file(file, "servers = 3\nmodel = \"mlp:4-2\"\nlr = 0.5\nnesterov = true\nsteps = 7\n");
  Program program;
  program.parse({"--steps", "9", "--config", file, "--workers", "4"});
  CHECK(program.flags.servers == 3);
  CHECK(program.flags.workers == 4);
  CHECK(program.flags.job.model == "mlp:4-2");
  CHECK(program.flags.job.lr == 0.5);
  CHECK(program.flags.job.nesterov);
  CHECK(program.flags.job.steps == 9);
}

TEST_CASE("a configuration file that says what no flag does is refused") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file("job.toml");
  CHECK(kind_of("serverz = 3\n", file) == ErrorKind::usage);
  CHECK(kind_of("[train]\nservers = 3\n", file) == ErrorKind::usage);
  Program program;
  CHECK_THROWS_AS(program.parse({"--config", folder.file("none.toml")}), Error);
}

}  // namespace
}  // namespace psring::cli
