#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <psring/cli/commands.h>
#include <psring/cli/report/report_file.h>
#include <psring/common/base/system/standard_files.h>

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
  out::print("{}", write_report(folders, out, app));
  return 0;
}

}  // namespace

Command add_report(const Flags& program) {
  const Flags command = program.add_command("report", "write a page with figures of runs and comparisons");
  auto flags = std::make_shared<ReportFlags>();  // shared: the parser fills it in, the command reads it
  command.add("RUN", flags->runs, "folders of runs or comparisons").show_value("DIR").require();
  command.add("--out", flags->out, "file to write (report.html in the folder; of several: here)").show_value("FILE");
  command.add_footer("The page is one HTML file. It needs no network and no server.");
  return [flags](const Invocation& invocation) { return run_report(*flags, invocation.app); };
}

}  // namespace psring::cli
