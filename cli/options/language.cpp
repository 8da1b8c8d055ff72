#include <psring/cli/options/language.h>
#include <psring/common/base/text/error.h>

namespace psring::cli {

Language parse_language(const std::string& text) {
  if (text == "en") return Language::en;
  if (text == "zh") return Language::zh;
  fail(ErrorKind::usage, "--lang: expected en or zh, got '{}'", text);
}

}  // namespace psring::cli
