#include <fmt/format.h>

#include <psring/view/folders.h>

namespace psring::view {

std::string folder_name(std::string label) {
  for (char& c : label)
    if (c == ':' || c == '/' || c == '=' || c == ',' || c == ' ') c = '-';
  return label;
}

std::filesystem::path run_folder(const std::filesystem::path& comparison, const std::string& label, std::size_t run) {
  const std::filesystem::path row = comparison / folder_name(label);
  const std::filesystem::path numbered = row / fmt::format("run-{}", run + 1);
  return std::filesystem::exists(numbered) ? numbered : row;
}

}  // namespace psring::view
