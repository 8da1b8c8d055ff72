#pragma once

#include <string>

#include <psring/common/base/text/json.h>

namespace psring::view {

/// Returns the report as one HTML file that holds the document of `collect`. Text in the document is data: it cannot
/// end the element that it lies in, and the page never reads it as markup.
std::string report_page(const Json& document);

/// Returns the viewer of `psring step` as one HTML file that holds the scenes, which docs/scene.md describes; as safe
/// as `report_page`.
std::string step_page(const Json& document);

/// Returns the page of `psring plan` as one HTML file that holds its rows and sweep (cli/plan/plan_document.h); as safe
/// as `report_page`.
std::string plan_page(const Json& document);

/// Returns the page of the live view, which asks its server for the state of docs/guide/live.md.
std::string live_page();

/// Returns the content security policy that a page states for itself; "" if it states none.
std::string content_policy(const std::string& page);

/// Returns JSON text without '<', '>' and '&', for an HTML element of type application/json. Bytes that are not UTF-8
/// become U+FFFD.
std::string to_script_text(const Json& document);

}  // namespace psring::view
