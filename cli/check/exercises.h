#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <psring/cli/app.h>
#include <psring/cli/check/solution.h>
#include <psring/cli/options/language.h>
#include <psring/common/base/text/json.h>
#include <psring/view/step/source_texts.h>

namespace psring::cli {

/// Returns a text's words in a language; other values as they are.
template <class T>
decltype(auto) in_language(const T& value, Language language) {
  if constexpr (requires { value.in(language); })
    return value.in(language);
  else
    return value;
}

/// A formatted text in both languages. Texts and messages among its values appear in the same language.
class Message {
 public:
  Message() = default;
  template <class... Values>
  Message(const Text& text, const Values&... values)  // NOLINT(google-explicit-constructor): a text is a message
      : en_(say(Language::en, text, in_language(values, Language::en)...)),
        zh_(say(Language::zh, text, in_language(values, Language::zh)...)) {}

  const std::string& in(Language language) const { return language == Language::zh ? zh_ : en_; }
  bool empty() const { return en_.empty(); }

 private:
  std::string en_, zh_;
};

/// Thrown by a check that refuses a solution: says what is wrong.
struct Mistake {
  Message text;
};

/// Throws a Mistake.
template <class... Values>
[[noreturn]] void refuse(const Text& text, const Values&... values) {
  throw Mistake{Message(text, values...)};
}

/// The work that a check examines.
struct Submission {
  Language language = Language::en;  ///< of the scene
  const App& app;                    ///< for checks that run jobs
  std::filesystem::path file;        ///< the student's file
  const Solution* solution;          ///< the compiled file; null for exercises without C++
  /// Set by a check before it refuses, if it can: the scene of the moment that went wrong. Null: none.
  Json& scene;
};

/// One thing that is checked, and its points.
struct Check {
  Text name;
  unsigned points;                               ///< 0: a condition of other checks
  std::function<void(const Submission&)> run{};  ///< throws Mistake if the submission does not pass
  /// An earlier check, by its place in the exercise, that would fail for the same mistake: while it fails, this check
  /// is not reached.
  std::optional<std::size_t> need{};
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

/// All exercises, by number. Each has a source of its own.
std::vector<Exercise> exercises();

/// Returns the texts and starting files of all exercises, which the build has embedded (cli/CMakeLists.txt).
std::span<const view::SourceText> exercise_texts();

/// The outcomes of an exercise's checks. The process that runs the student's code appends a line at each check's begin
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

  std::size_t count(State state) const;
  bool passed(std::size_t check) const { return by_check[check].state == State::passed; }
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
