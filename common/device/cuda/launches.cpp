#include <psring/common/device/cuda/errors.h>
#include <psring/common/device/cuda/launches.h>

namespace psring::cuda {
namespace {

/// Shortest sequence that becomes a graph: launching a graph costs as much as launching a few kernels.
constexpr std::size_t kFewest = 3;
/// Maximum number of remembered sequences. A step of a large model has some hundreds.
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

/// Records a sequence only when it recurs: most sequences with arguments that change from step to step never recur.
void Launches::flush() {
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

/// Returns null if the driver cannot make a graph of the sequence. Other threads may call CUDA meanwhile.
cudaGraphExec_t Launches::record(const Sequence& sequence) const {
  check_call(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  bool complete = true;
  try {
    launch_all(sequence);
  } catch (...) {  // launching them one by one will throw the error again
    complete = false;
  }
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t graph = nullptr;
  if (cudaStreamEndCapture(stream_, &recorded) != cudaSuccess || !complete ||
      cudaGraphInstantiate(&graph, recorded, 0) != cudaSuccess)
    cudaGetLastError();  // clears the error, so that the next call does not return it
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  return graph;
}

}  // namespace psring::cuda
