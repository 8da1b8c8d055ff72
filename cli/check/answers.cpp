#include <algorithm>
#include <map>

#include <psring/cli/check/answers.h>
#include <psring/common/base/text/number.h>
#include <psring/common/base/text/text.h>

namespace psring::cli {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::map<std::string, std::string> read_answers(const Submission& submission, const std::vector<std::string>& names) {
  std::map<std::string, std::string> answers;
  LineReader lines(submission.file.string());
  std::size_t number = 0;
  for (std::string line; lines.next(line);) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos)
      refuse({"line {}: expected NAME = VALUE, got '{}'", "第 {} 行：应为 名称 = 值，却是 '{}'"}, number, line);
    const std::string name = trimmed(line.substr(0, equals));
    if (std::find(names.begin(), names.end(), name) == names.end())
      refuse({"line {}: there is no question '{}'", "第 {} 行：没有 '{}' 这个问题"}, number, name);
    if (!answers.emplace(name, trimmed(line.substr(equals + 1))).second)
      refuse({"line {}: '{}' has an answer already", "第 {} 行：'{}' 已经有答案"}, number, name);
  }
  return answers;
}

}  // namespace

double Answer::number() const {
  std::string digits = text;
  std::erase_if(digits, [](char c) { return c == '_' || c == ','; });
  const auto value = read_number<double>(digits);
  if (!value) refuse({"'{}' is '{}', which is no number", "'{}' 是 '{}'，不是数"}, name, digits);
  return *value;
}

std::vector<Check> answer_checks(const std::vector<Question>& questions) {
  std::vector<std::string> names;
  for (const Question& question : questions) names.push_back(question.name);
  std::vector<Check> checks = {{{"every line is NAME = VALUE", "每一行都是 名称 = 值"},
                                0,
                                [names](const Submission& submission) { read_answers(submission, names); },
                                {},
                                true}};
  for (const Question& question : questions) {
    const auto judge = [names, name = question.name, judge = question.judge](const Submission& submission) {
      const Answer answer{name, read_answers(submission, names)[name]};
      if (answer.text.empty() || answer.text == "?")
        refuse({"'{}' has no answer yet; write your prediction in place of the question mark",
                "'{}' 还没有答案；请把问号换成你的预测"},
               name);
      judge(submission, answer);
    };
    checks.push_back({question.title, question.points, judge, question.need, question.kept});
  }
  return checks;
}

}  // namespace psring::cli
