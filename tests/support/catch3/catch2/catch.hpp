#pragma once

// Catch2 3, which Debian 13 has, by the header and the names of Catch2 2, which Debian 12 has.

#include <string>

#include <catch2/catch_all.hpp>

namespace Catch {

using Matchers::EndsWith;
using Matchers::Message;
using Matchers::StartsWith;
using Matchers::WithinRel;

inline Matchers::StringContainsMatcher Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }

}  // namespace Catch

using Catch::Approx;
