#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <psring/cli/check/exercises.h>

namespace psring::cli {

/// A file of lines `name = value`; a # begins a comment.
class Answers {
 public:
  /// Refuses a line of another form, a name that is not in `names`, and a second line of one name.
  static Answers read(const Submission& submission, const std::vector<std::string>& names);

  /// The answer of this name. Refuses the submission if the line is missing, or is still '?'.
  std::string text(const Submission& submission, const std::string& name) const;
  double number(const Submission& submission, const std::string& name) const;

  /// The check that the file can be read, which every check of an answer needs.
  static Check form_check(const std::vector<std::string>& names);

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace psring::cli
