#pragma once

#include <filesystem>
#include <span>

#include <psring/cli/check/exercises.h>
#include <psring/view/step/source_texts.h>

namespace psring::cli {

/// Returns the texts and starting files of all exercises, which the build has embedded (cli/CMakeLists.txt).
std::span<const view::SourceText> exercise_texts();

/// Writes an exercise's texts and its starting file to a new folder. Links of the texts that lead out of the exercise's
/// folder become paths from psring's source tree. Throws usage if `folder` exists, data if it cannot be written.
void copy_exercise(const Exercise& exercise, const std::filesystem::path& folder);

}  // namespace psring::cli
