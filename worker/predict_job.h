#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <psring/common/base/text/json.h>
#include <psring/worker/exchange/prediction.h>
#include <psring/worker/train_setup.h>

namespace psring::worker {

/// Predicts the bytes that workers of the job move in a step and book, as Training::predict does in the running job,
/// without processes, links, or memory for tensors: the job's own strategy is made over a planned group.
///
/// `hosts`: each worker's host, as any number. `ranks`: the workers to predict. The strategy's units are cut as the
/// workers will cut them (--shard-group host); afterwards the setup is unchanged. Throws usage if the job cannot run on
/// these hosts.
std::vector<Prediction> predict_workers(TrainSetup& setup, const std::vector<std::size_t>& hosts,
                                        std::span<const std::size_t> ranks);

/// The host of each worker if `hosts` agents start them: contiguous shares of the ranks, as evenly as possible.
std::vector<std::size_t> place_workers(std::size_t workers, std::size_t hosts);

/// The sum of all categories, in bytes.
std::uint64_t total_bytes(const std::map<Category, std::uint64_t>& memory);
/// An object of the bytes by the names of the categories.
Json to_json(const std::map<Category, std::uint64_t>& memory);

}  // namespace psring::worker
