#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <cuda_runtime.h>

#include <psring/common/base/elements.h>

namespace psring::cuda {

/// A call and its arguments as bytes. Equal keys mean the same work on the same memory.
class CallKey {
 public:
  template <class Value>
  requires(std::has_unique_object_representations_v<Value> ||
           std::is_floating_point_v<Value>) void add(const Value& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class Byte>
  void add(const BasicElements<Byte>& elements) {
    add(elements.data(), elements.size(), elements.type());
  }
  /// Adds a type with padding; its namespace has `void add_to_key(CallKey&, const Value&)`.
  template <class Value>
  requires requires(CallKey& key, const Value& value) { add_to_key(key, value); }
  void add(const Value& value) { add_to_key(*this, value); }
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

/// Kernels that were queued but not launched yet. They are launched together, before any other work of the queue. A
/// sequence that was launched before with the same arguments is launched as a CUDA graph: one launch instead of many.
class Launches {
 public:
  /// REQUIRES: the stream outlives this object.
  explicit Launches(cudaStream_t stream) : stream_(stream) {}
  ~Launches() { forget(); }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  /// `launch` must launch exactly the work that `key` describes.
  void add(CallKey key, std::function<void()> launch);
  /// Launches all pending kernels. Throws their errors.
  void flush();
  void use_graphs(bool use) { graphs_ = use; }
  /// Destroys all graphs and frees their memory. REQUIRES: no graph is running.
  void forget();
  /// The number of graph launches so far.
  std::size_t graphs_launched() const { return graphs_launched_; }

 private:
  /// A sequence that was launched before, with its graph if one could be made.
  struct Known {
    bool tried = false;
    cudaGraphExec_t graph = nullptr;
  };
  using Sequence = std::vector<std::function<void()>>;

  cudaGraphExec_t record(const Sequence& sequence) const;

  const cudaStream_t stream_;
  bool graphs_ = true;
  Sequence pending_;
  std::string key_;  ///< keys of all pending kernels
  std::unordered_map<std::string, Known> known_;
  std::size_t graphs_launched_ = 0;
};

}  // namespace psring::cuda
