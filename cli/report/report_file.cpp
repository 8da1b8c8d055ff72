#include <fmt/format.h>
#include <version.h>

#include <psring/cli/report/report_file.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/json.h>
#include <psring/view/collect.h>
#include <psring/view/page.h>

namespace psring::cli {

std::string write_report(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& out,
                         const App& app) {
  const std::string program = fmt::format("psring {} ({})", kVersion, kCommit);
  const std::string page = view::report_page(view::collect(folders, app.worker_registries(), program));
  write_whole(out.string(), page);
  return fmt::format("report: {} ({} KiB); open it in a browser\n",
                     std::filesystem::absolute(out).lexically_normal().string(), (page.size() + 1023) / 1024);
}

}  // namespace psring::cli
