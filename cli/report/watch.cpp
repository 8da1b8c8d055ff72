#include <filesystem>
#include <memory>
#include <string>

#include <unistd.h>

#include <psring/cli/commands.h>
#include <psring/cli/options/flags.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/common/proc/coordinator/coordinator_process.h>
#include <psring/view/live/watch.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNice = 10;  ///< the job comes first

struct WatchFlags {
  std::string run;
  std::string listen = "127.0.0.1:0";
  int endpoint_fd = -1;
};

std::size_t tokens_of(const std::string& text, const App& app) {
  try {
    const auto model = app.worker_registries().models.make(Spec::parse("--model", text));
    return model->tokens ? model->input_cols : 0;
  } catch (const Error&) {  // a program with more models recorded the run
    return 0;
  }
}

int watch(const WatchFlags& flags, const App& app) {
  const bool by_launcher = flags.endpoint_fd >= 0;
  std::error_code error;
  fs::path folder = fs::weakly_canonical(flags.run, error);
  if (!folder.has_filename()) folder = folder.parent_path();  // "run/"
  if (!by_launcher) check_folder(flags.run);
  if (!by_launcher && fs::exists(folder / "compare.json", error))
    fail(ErrorKind::usage, "{}: holds a comparison; give the folder of one of its runs", flags.run);
  if (!by_launcher && !fs::exists(folder / "run.json", error))
    fail(ErrorKind::data, "{}: holds no run (no run.json is there)", flags.run);
  const SystemClock clock;
  view::Watch watch({.folder = folder,
                     .listen = flags.listen,
                     .tokens = [&app](const std::string& model) { return tokens_of(model, app); }},
                    clock);
  if (by_launcher) {
    [[maybe_unused]] const int ignored = ::nice(kNice);
    publish_endpoint(flags.endpoint_fd, watch.url());
  } else {
    out::print("live view: {}\nCtrl-C ends the view; the run does not notice\n", watch.url());
    std::fflush(stdout);
  }
  watch.run(by_launcher);
  return 0;
}

}  // namespace

Command add_watch(const Flags& program) {
  const Flags command = program.add_command("watch", "serve a live view of a run, in progress or not, to a browser");
  auto flags = std::make_shared<WatchFlags>();  // shared: the parser fills it in, the command reads it
  command.add("RUN", flags->run, "run folder").show_value("DIR").require();
  command.add("--listen", flags->listen, "ADDR:PORT of the view; port 0: any free port").show_default();
  command.add("--endpoint-fd", flags->endpoint_fd).hide();
  command.add_footer("The view only reads the run folder. /metrics of the printed address has metrics for Prometheus.");
  return [flags](const Invocation& invocation) { return watch(*flags, invocation.app); };
}

}  // namespace psring::cli
