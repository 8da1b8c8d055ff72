#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include <psring/cli/check/marks.h>
#include <psring/common/base/error.h>
#include <psring/common/base/file.h>
#include <psring/common/base/text.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

/// Appends lines of JSON, each written at once.
class MarkFile {
 public:
  explicit MarkFile(const fs::path& path) : path_(path.string()), out_(path, std::ios::app) {}
  void append(const Json& line) {
    out_ << line.dump_any_bytes() << "\n";
    flush(out_, path_);
  }

 private:
  const std::string path_;
  std::ofstream out_;
};

}  // namespace

std::optional<std::size_t> Marks::running() const {
  for (std::size_t i = 0; i < by_check.size(); ++i)
    if (by_check[i].state == State::running) return i;
  return std::nullopt;
}

bool Marks::all_passed() const {
  return std::all_of(by_check.begin(), by_check.end(), [](const Mark& mark) { return mark.state == State::passed; });
}

Points points_of(const Exercise& exercise, const Marks& marks) {
  Points points;
  unsigned kept = 0;
  for (std::size_t i = 0; i < exercise.checks.size(); ++i) {
    const Check& check = exercise.checks[i];
    points.all += check.points;
    if (marks.passed(i)) (check.kept ? kept : points.reached) += check.points;
  }
  if (points.reached > 0) points.reached += kept;
  return points;
}

void run_checks(const Exercise& exercise, Submission submission, const fs::path& folder) {
  MarkFile file(folder / "marks");
  bool shown = false;
  std::vector<bool> passed(exercise.checks.size());
  for (std::size_t i = 0; i < exercise.checks.size(); ++i) {
    const std::vector<std::size_t>& needs = exercise.checks[i].needs;
    if (!std::all_of(needs.begin(), needs.end(), [&](std::size_t need) { return passed[need]; })) {
      file.append({{"check", i}, {"state", "not_reached"}});
      continue;
    }
    file.append({{"check", i}, {"state", "running"}});
    submission.scene = {};
    try {
      exercise.checks[i].run(submission);
      file.append({{"check", i}, {"state", "passed"}});
      passed[i] = true;
    } catch (const Mistake& mistake) {
      file.append({{"check", i}, {"state", "refused"}, {"text", mistake.what()}});
      if (shown || submission.scene.is_null()) continue;
      write_whole((folder / "scene.json").string(), submission.scene.dump());
      shown = true;
    } catch (const Error& error) {
      file.append({{"error", error.what()}});
      return;
    }
  }
  file.append({{"ended", true}});
}

Marks read_marks(const Exercise& exercise, const fs::path& folder) {
  Marks marks;
  marks.by_check.resize(exercise.checks.size());
  LineReader lines((folder / "marks").string(), LineReader::IfMissing::no_lines);
  for (std::string line; lines.next(line);) {
    const std::optional<Json> json = Json::try_parse(line);
    if (!json) break;  // the process was ended while it wrote the line
    if (json->contains("error")) marks.error = json->at("error").get<std::string>();
    if (json->contains("ended")) marks.ended = true;
    if (!json->contains("check")) continue;
    Marks::Mark& mark = marks.by_check.at(json->at("check").get<std::size_t>());
    const std::string state = json->at("state").get<std::string>();
    mark.state = state == "running"       ? Marks::State::running
                 : state == "not_reached" ? Marks::State::not_reached
                 : state == "passed"      ? Marks::State::passed
                                          : Marks::State::refused;
    mark.text = json->value("text", "");
  }
  return marks;
}

Json read_scene(const fs::path& folder) {
  const std::optional<std::string> text = read_whole_if_present(folder / "scene.json");
  return text ? Json::parse(*text) : Json();
}

}  // namespace psring::cli
