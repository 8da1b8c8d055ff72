#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/check/solution.h>
#include <psring/cli/language.h>
#include <psring/common/base/json.h>

namespace psring::cli {

/// Thrown by a check that refuses a solution: says in words what is wrong.
class Mistake : public std::exception {
 public:
  explicit Mistake(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// The work that a check examines.
struct Submission {
  Language language = Language::en;
  const App& app;              ///< for checks that run jobs
  std::filesystem::path file;  ///< the student's file
  const Solution* solution;    ///< the compiled file; null for exercises without C++
  /// Set by a check before it throws, if it can: the scene of the moment that went wrong. Null: none.
  Json& scene;

  /// Throws a Mistake.
  template <class... Values>
  [[noreturn]] void refuse(const Text& text, const Values&... values) const {
    throw Mistake(say(language, text, values...));
  }
};

/// One thing that is checked, and its points.
struct Check {
  Text name;
  unsigned points;  ///< 0: a condition of other checks
  /// Returns if the submission passes. Throws Mistake if not.
  std::function<void(const Submission&)> run;
  /// Earlier checks, by their place in the exercise, that would fail for the same mistake: while one of them fails,
  /// this check is not reached.
  std::vector<std::size_t> needs{};
  /// The starting file passes this check, so its points count only if a check that the starting file fails passes, too.
  bool kept = false;
};

struct Exercise {
  unsigned number;
  std::string name;  ///< its folder is docs/exercises/NN-name
  Text title;
  std::string file;  ///< the student's file in that folder
  std::vector<Check> checks;

  bool is_program() const { return file.ends_with(".cpp"); }
  std::string folder() const;
};

/// All exercises, by number.
std::vector<Exercise> exercises();

// One source each.
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

}  // namespace psring::cli
