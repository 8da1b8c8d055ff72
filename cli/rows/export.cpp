// psring export: the rows of a checkpoint's tables, for programs that read them.
#include <memory>
#include <string>

#include <fmt/format.h>

#include <psring/cli/commands.h>
#include <psring/cli/options/parts.h>
#include <psring/common/base/system/standard_files.h>
#include <psring/worker/tables/row_export.h>

namespace psring::cli {

Command add_export(const Flags& program) {
  const Flags command =
      program.add_command("export", "write the rows of a checkpoint's tables, or what changed in them");
  struct ExportFlags {
    std::string from;
    std::string folder;
    std::string type = "f32";
    bool base = false;
  };
  auto flags = std::make_shared<ExportFlags>();  // shared: the parser fills it in, the command reads it
  command.add("FROM", flags->from, "run folder, folder of checkpoints, or checkpoint").show_value("DIR").require();
  command.add("FOLDER", flags->folder, "folder of the exports").show_value("DIR").require();
  command.add("--type", flags->type, "type of the values: f32, bf16, or int8 with a scale for each row").show_default();
  command.add_switch("--base", flags->base, "write all rows, although the folder has a base");
  command.add_footer(
      "The first export in a folder is a base, with all rows. Later ones are deltas: the rows whose stored values have "
      "changed since the export before, and the keys that have no row any more. psring rows reads them.");
  return [flags](const Invocation&) {
    const worker::RowType type = worker::parse_row_type("--type", flags->type);
    const worker::WrittenExport done =
        worker::export_rows(checkpoint_at(flags->from), flags->folder, type, flags->base);
    const std::string after = done.follows ? fmt::format(" after {}", *done.follows) : "";
    out::print("{}: step {}{}\n", done.path.string(), done.step, after);
    for (const worker::ExportedTable& table : done.tables)
      out::print("{}: {} of {} rows, {} removed keys\n", table.name, table.written, table.rows, table.removed);
    return 0;
  };
}

}  // namespace psring::cli
