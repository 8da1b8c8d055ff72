#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <psring/cli/check/exercises.h>

namespace psring::cli {

/// How each check of an exercise ended. The process that runs the student's code appends a line at each check's begin
/// and end to a file, so that the marks are known even if the code crashes or never ends.
struct Marks {
  enum class State : std::uint8_t { not_run, not_reached, running, passed, refused };
  struct Mark {
    State state = State::not_run;
    std::string text;  ///< why the check refused
  };
  std::vector<Mark> by_check;
  std::string error;   ///< "": none; else an error beside the checks, such as a missing function
  bool ended = false;  ///< all checks have run

  std::optional<std::size_t> running() const;
  bool passed(std::size_t check) const { return by_check[check].state == State::passed; }
  bool all_passed() const;
};

/// The points that a submission has reached, of all.
struct Points {
  unsigned reached = 0;
  unsigned all = 0;
};

/// Adds up the points. A starting file reaches none (Check::kept).
Points points_of(const Exercise& exercise, const Marks& marks);

/// Runs all checks whose needs have passed, one after another, and appends to `folder`/marks. The scene of the first
/// refused check that has one goes to `folder`/scene.json.
void run_checks(const Exercise& exercise, Submission submission, const std::filesystem::path& folder);

/// Reads what run_checks has written so far.
Marks read_marks(const Exercise& exercise, const std::filesystem::path& folder);

/// The scene that run_checks wrote; null: none.
Json read_scene(const std::filesystem::path& folder);

}  // namespace psring::cli
