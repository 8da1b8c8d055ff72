#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <psring/common/base/elements.h>
#include <psring/common/device/tensor_kernels.h>

namespace psring::cuda {

/// What a call was called with, as bytes, what is called first: equal ones do the same to the same memory.
class CallKey {
 public:
  template <class Value>
  requires(std::has_unique_object_representations_v<Value> ||
           std::is_floating_point_v<Value>) void add(const Value& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class Byte>
  void add(const BasicElements<Byte>& of) {
    add(of.data(), of.size(), of.type());
  }
  /// Without row strides: products have none.
  void add(const Gemm& of) { add(of.m, of.n, of.k, of.transpose_a, of.transpose_b); }
  void add(const Product& of) { add(of.shape, of.a, of.b, of.out, of.added, of.bias, of.then, of.kept); }
  void add(const TensorKernels::NormGradients& of) { add(of.weight, of.bias, of.weight_beta, of.bias_beta); }
  template <class First, class Second, class... Others>
  void add(const First& first, const Second& second, const Others&... others) {
    add(first);
    add(second);
    (add(others), ...);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Kernels that a queue has been told and has not been given yet: they leave together, before anything else that it
/// gets. A sequence that left before, with the same arguments, leaves as a CUDA graph: one launch in place of many.
class Launches {
 public:
  /// REQUIRES: the stream outlives it.
  explicit Launches(cudaStream_t stream) : stream_(stream) {}
  ~Launches() { forget(); }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  /// `launch` gives the stream what the key says, and nothing else.
  void add(CallKey key, std::function<void()> launch);
  /// Those that have not left do. Throws what they throw.
  void leave();
  void use_graphs(bool use) { graphs_ = use; }
  /// Graphs go, and their memory. REQUIRES: none is under way.
  void forget();
  /// How often a graph has left.
  std::size_t graphs_launched() const { return graphs_launched_; }

 private:
  /// A sequence that has left: as it came, then as a graph, if one could be made of it.
  struct Known {
    bool tried = false;
    cudaGraphExec_t graph = nullptr;
  };
  using Sequence = std::vector<std::function<void()>>;

  cudaGraphExec_t record(const Sequence& sequence) const;

  const cudaStream_t stream_;
  bool graphs_ = true;
  Sequence pending_;
  std::string key_;  ///< of all that are pending
  std::unordered_map<std::string, Known> known_;
  std::size_t graphs_launched_ = 0;
};

}  // namespace psring::cuda
