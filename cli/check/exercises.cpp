#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include <psring/cli/check/exercises.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {

namespace fs = std::filesystem;

Exercise reduce_scatter_exercise();
Exercise naive_ddp_exercise();
Exercise buckets_exercise();
Exercise sampler_exercise();
Exercise server_bottleneck_exercise();
Exercise memory_exercise();
Exercise zero1_exercise();
Exercise fsdp_units_exercise();
Exercise event_list_exercise();
Exercise zero_point_exercise();
Exercise slow_link_exercise();
Exercise lecture_notes_exercise();
Exercise tensor_backward_exercise();
Exercise pipeline_exercise();
Exercise row_owners_exercise();

std::vector<Exercise> exercises() {
  return {reduce_scatter_exercise(),    naive_ddp_exercise(),  buckets_exercise(),   sampler_exercise(),
          server_bottleneck_exercise(), memory_exercise(),     zero1_exercise(),     fsdp_units_exercise(),
          event_list_exercise(),        zero_point_exercise(), slow_link_exercise(), lecture_notes_exercise(),
          tensor_backward_exercise(),   pipeline_exercise(),   row_owners_exercise()};
}

std::string Exercise::folder() const { return fmt::format("docs/exercises/{:02}-{}", number, name); }

std::size_t Marks::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(by_check.begin(), by_check.end(), [&](const Mark& mark) { return mark.state == state; }));
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
  const std::string path = (folder / "marks").string();
  std::ofstream out(path, std::ios::app);
  const auto append = [&](const Json& line) {
    out << line.dump_any_bytes() << "\n";
    flush(out, path);
  };
  bool shown = false;
  std::vector<bool> passed(exercise.checks.size());
  for (std::size_t i = 0; i < exercise.checks.size(); ++i) {
    const auto mark = [&](Marks::State state, const std::string& text = "") {
      append({{"check", i}, {"state", static_cast<unsigned>(state)}, {"text", text}});
    };
    const Check& check = exercise.checks[i];
    if (check.need && !passed[*check.need]) {
      mark(Marks::State::not_reached);
      continue;
    }
    mark(Marks::State::running);
    submission.scene = {};
    try {
      check.run(submission);
      mark(Marks::State::passed);
      passed[i] = true;
    } catch (const Mistake& mistake) {
      mark(Marks::State::refused, mistake.text.in(submission.language));
      if (shown || submission.scene.is_null()) continue;
      write_whole((folder / "scene.json").string(), submission.scene.dump());
      shown = true;
    } catch (const Error& error) {
      append({{"error", error.what()}});
      return;
    }
  }
  append({{"ended", true}});
}

Marks read_marks(const Exercise& exercise, const fs::path& folder) {
  Marks marks;
  marks.by_check.resize(exercise.checks.size());
  LineReader lines((folder / "marks").string(), LineReader::IfMissing::no_lines);
  for (std::string line; lines.next(line);) {
    const std::optional<Json> json = Json::try_parse(line);
    if (!json) break;  // the process was ended while it wrote the line
    marks.error = json->value("error", marks.error);
    marks.ended = json->contains("ended");
    if (json->contains("check"))
      marks.by_check.at(json->at("check").get<std::size_t>()) = {Marks::State(json->at("state").get<unsigned>()),
                                                                 json->at("text").get<std::string>()};
  }
  return marks;
}

Json read_scene(const fs::path& folder) {
  const std::optional<std::string> text = read_whole_if_present(folder / "scene.json");
  return text ? Json::parse(*text) : Json();
}

}  // namespace psring::cli
