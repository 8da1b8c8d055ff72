#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <psring/cli/check/exercises.h>

namespace psring::cli {

/// The answer to a question.
struct Answer {
  std::string name;  ///< of the question
  std::string text;

  /// Refuses an answer that is no number.
  double number() const;
};

/// A question of an exercise whose file has a line `name = value` for each; a # begins a comment.
struct Question {
  std::string name;
  Text title;
  unsigned points;
  std::function<void(const Submission&, const Answer&)> judge;  ///< refuses a wrong answer
  std::size_t need = 0;                                         ///< see Check; 0: the lines' form
  bool kept = false;
};

/// The checks of such an exercise. The first refuses a line of another form, a name without a question, and a second
/// answer to a question; it has no points. The others, one for each question, also refuse an answer that is missing.
std::vector<Check> answer_checks(const std::vector<Question>& questions);

}  // namespace psring::cli
