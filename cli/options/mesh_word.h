#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <psring/common/proc/job.h>
#include <psring/common/proc/options/values.h>

namespace psring::cli {

/// A word of --strategies: "zero3", or axes of a mesh and a strategy along the data axis: "pp:2:1f1b+ddp", "tp:2".
struct MeshWord {
  std::string strategy = "ddp";
  options::Given axes = {};  ///< the options that the word gives: tensor, pipeline, pipeline-schedule
  /// A mesh without a strategy is one copy of the model: tensor times pipeline workers.
  bool one_copy = false;
  std::size_t parts = 1;   ///< tensor times pipeline
  std::size_t stages = 1;  ///< pipeline
};

/// Throws usage, naming --strategies, if the text has another form, and if an axis is in `given`, too.
MeshWord parse_mesh_word(const std::string& text, const options::Given& given);

/// Throws usage, naming --strategies, if two of the words mean the same.
void refuse_duplicates(const std::vector<std::string>& words, const options::Given& given);

/// The name of a job in tables: "zero3", "tp:2+pp:4:1f1b+zero1"; "pp:2" for one copy of the model under ddp.
std::string mesh_name(const JobOptions& job);

}  // namespace psring::cli
