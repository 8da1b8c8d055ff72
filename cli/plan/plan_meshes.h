#pragma once

#include <string>
#include <vector>

#include <psring/cli/options/mesh_word.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

/// Reads a word of a plan's --strategies. --tensor and --pipeline give a strategy without a mesh theirs.
MeshWord plan_word(const std::string& text, const options::Given& given);
/// The mesh of a word, for messages: "--tensor 2 --pipeline 4".
std::string plan_word_text(const MeshWord& word);

/// The numbers of micro-batches that a plan tries for a pipeline: with few, stages wait; with many, messages and layers
/// are small.
std::vector<std::string> micro_batches_of(const MeshWord& word);

}  // namespace psring::cli
