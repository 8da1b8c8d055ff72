#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace psring {

/// Returns the names in a node list of Slurm, in order:
///   list := item ("," item)*      item := (text | "[" range ("," range)* "]")+      range := digits ["-" digits]
/// "n[1-2,07],login" is n1, n2, n07, login; leading zeros give a number its width. Throws usage, naming `variable`, if
/// the text has another form, or lists more than kMostNodes names.
std::vector<std::string> parse_node_list(std::string_view variable, std::string_view text);

/// Returns the numbers of tasks in a list of Slurm, one number a node: "3,1" or "2(x3),1". Throws usage, naming
/// `variable`, if the text has another form, or lists more than kMostNodes nodes.
std::vector<std::size_t> parse_tasks_per_node(std::string_view variable, std::string_view text);

inline constexpr std::size_t kMostNodes = 65536;

}  // namespace psring
