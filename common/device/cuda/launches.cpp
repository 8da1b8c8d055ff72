#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/launches.h>

namespace psring::cuda {
namespace {

/// A graph's launch costs as much as that of a few kernels.
constexpr std::size_t kFewest = 3;
/// Sequences that are remembered: a step of a large model has some hundred.
constexpr std::size_t kMost = 2048;

void launch_all(const std::vector<std::function<void()>>& sequence) {
  for (const auto& launch : sequence) launch();
}

}  // namespace

void Launches::forget() {
  for (const auto& [key, known] : known_)
    if (known.graph != nullptr) cudaGraphExecDestroy(known.graph);
  known_.clear();
}

void Launches::add(CallKey key, std::function<void()> launch) {
  key_ += key.bytes();
  pending_.push_back(std::move(launch));
}

/// What comes once is not recorded: most that changes from step to step never comes again.
void Launches::leave() {
  if (pending_.empty()) return;
  const Sequence sequence = std::exchange(pending_, {});
  std::string key = std::exchange(key_, {});
  if (!graphs_ || sequence.size() < kFewest) return launch_all(sequence);
  const auto at = known_.find(key);
  if (at == known_.end()) {
    if (known_.size() >= kMost) std::erase_if(known_, [](const auto& each) { return each.second.graph == nullptr; });
    if (known_.size() < kMost) known_.emplace(std::move(key), Known());
    return launch_all(sequence);
  }
  Known& known = at->second;
  if (!std::exchange(known.tried, true)) known.graph = record(sequence);
  if (known.graph == nullptr) return launch_all(sequence);
  check_call(cudaGraphLaunch(known.graph, stream_), "cudaGraphLaunch");
  ++graphs_launched_;
}

/// Null where the driver makes no graph of it. Other threads go on calling CUDA meanwhile.
cudaGraphExec_t Launches::record(const Sequence& sequence) const {
  check_call(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  bool told = true;
  try {
    launch_all(sequence);
  } catch (...) {  // told of when they are launched one by one
    told = false;
  }
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  if (cudaStreamEndCapture(stream_, &recorded) != cudaSuccess || !told ||
      cudaGraphInstantiate(&graph, recorded, 0) != cudaSuccess)
    cudaGetLastError();  // not an error of the next call
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  return graph;
}

}  // namespace psring::cuda
