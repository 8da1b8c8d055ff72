#include <string_view>

#include <psring/common/base/text/error.h>
#include <psring/view/page.h>
#include <psring/view/page_bytes.h>

namespace psring::view {
namespace {

constexpr std::string_view kPlace = "__PSRING_DATA__";  ///< in the page, where the document belongs

std::string_view bytes_of(const unsigned char* page, std::size_t bytes) {
  return {reinterpret_cast<const char*>(page), bytes};
}

std::string with_document(std::string_view page, const Json& document) {
  const std::size_t place = page.find(kPlace);
  check(place != std::string_view::npos, "a page of view/web has no place for its data");
  std::string text(page.substr(0, place));
  text += to_script_text(document);
  text += page.substr(place + kPlace.size());
  return text;
}

}  // namespace

std::string to_script_text(const Json& document) {
  const std::string json = document.dump_any_bytes();
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    // These characters occur in strings only, where JSON allows the escape.
    switch (c) {
      case '<':
        text += "\\u003c";
        break;
      case '>':
        text += "\\u003e";
        break;
      case '&':
        text += "\\u0026";
        break;
      default:
        text += c;
    }
  }
  return text;
}

std::string report_page(const Json& document) {
  return with_document(bytes_of(kReportPage, kReportPageBytes), document);
}

std::string step_page(const Json& document) { return with_document(bytes_of(kStepPage, kStepPageBytes), document); }

std::string plan_page(const Json& document) { return with_document(bytes_of(kPlanPage, kPlanPageBytes), document); }

std::string live_page() { return std::string(bytes_of(kLivePage, kLivePageBytes)); }

std::string content_policy(const std::string& page) {
  constexpr std::string_view kBegin = "<meta http-equiv=\"Content-Security-Policy\" content=\"";
  const std::size_t begin = page.find(kBegin);
  if (begin == std::string::npos) return "";
  return page.substr(begin + kBegin.size(), page.find('"', begin + kBegin.size()) - begin - kBegin.size());
}

}  // namespace psring::view
