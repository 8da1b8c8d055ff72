#pragma once

#include <string>

#include <psring/common/base/text/json.h>

namespace psring::cli {

/// Returns an object or a list as a YAML 1.2 document in block style, which begins with "---". A text stands without
/// quotes only where no reader of YAML 1.1 or 1.2 takes the text for something else.
std::string to_yaml(const Json& document);

}  // namespace psring::cli
