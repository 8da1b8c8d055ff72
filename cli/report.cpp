#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <psring/cli/commands.h>
#include <psring/cli/report_file.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out;
};

int run_report(const ReportFlags& flags, const App& app) {
  const std::vector<fs::path> folders(flags.runs.begin(), flags.runs.end());
  fs::path out = flags.out;
  if (out.empty()) out = folders.size() == 1 ? folders.front() / "report.html" : fs::path("report.html");
  fmt::print("{}", write_report(folders, out, app));
  return 0;
}

}  // namespace

Command add_report(CLI::App& root) {
  CLI::App* command = root.add_subcommand("report", "write a page with figures of runs and comparisons");
  auto flags = std::make_shared<ReportFlags>();  // shared: the parser fills it in, the command reads it
  command->add_option("RUN", flags->runs, "folders of runs or comparisons")->required();
  command->add_option("--out", flags->out, "file to write (report.html in the folder; of several: here)");
  command->footer("The page is one HTML file. It needs no network and no server.");
  return [flags](const Invocation& invocation) { return run_report(*flags, invocation.app); };
}

}  // namespace psring::cli
