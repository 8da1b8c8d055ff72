#include <memory>
#include <string>

#include <psring/cli/commands.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/view/trace_file.h>

namespace psring::cli {

Command add_trace(const Flags& program) {
  const Flags command = program.add_command("trace", "write trace.json of a run from its recorded events");
  auto run = std::make_shared<std::string>();  // shared: the parser fills it in, the command reads it
  command.add("RUN", *run, "run folder").show_value("DIR").require();
  command.add_footer("train records events with --events on or --trace on. Perfetto opens trace.json.");
  return [run](const Invocation& /*invocation*/) {
    out::print("{}\n", view::write_trace(*run).string());
    return 0;
  };
}

}  // namespace psring::cli
