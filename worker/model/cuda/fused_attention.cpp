#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>

#include <cudnn_frontend.h>

#include <psring/common/base/text/error.h>
#include <psring/worker/model/cuda/fused_attention.h>

// Attention as graphs of cuDNN (its frontend's `sdpa` and `sdpa_backward`). A graph handles a block of sequences and
// heads; a pass runs it over all blocks.

namespace psring::worker::cuda {
namespace {

using cudnn_frontend::DataType_t;
using cudnn_frontend::graph::Graph;
using cudnn_frontend::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

constexpr std::size_t kMostScratch = std::size_t{2} << 30;

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) fail(ErrorKind::data, "{}: {}", call, cudnnGetErrorString(status));
}

/// The tensors of both passes, as names of their addresses.
enum Name : std::int64_t { kQuery = 1, kKey, kValue, kOut, kLogSums, kDOut, kDQuery, kDKey, kDValue };

/// Returns the largest divisor of `all` that is at most `most`, and at least 1.
std::size_t divisor_within(std::size_t all, std::size_t most) {
  std::size_t divisor = std::clamp<std::size_t>(most, 1, all);
  while (all % divisor != 0) --divisor;
  return divisor;
}

/// Returns the part of a shape that one call of a graph handles: the sequences and heads whose context x context scores
/// of 2 bytes fit into the bound of memory.
AttentionShape block_of(const AttentionShape& shape) {
  const std::size_t most = kMostScratch / 2 / (shape.context * shape.context);
  AttentionShape block = shape;
  block.batch = divisor_within(shape.batch, most / shape.heads);
  if (block.batch == 1) block.heads = divisor_within(shape.heads, most);
  return block;
}

Graph empty_graph(DType type) {
  Graph graph;
  graph.set_io_data_type(type == DType::bf16 ? DataType_t::BFLOAT16 : DataType_t::HALF)
      .set_intermediate_data_type(DataType_t::FLOAT)
      .set_compute_data_type(DataType_t::FLOAT);
  return graph;
}

float scale_of(const AttentionShape& shape) { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }

/// The dimensions and strides of a block: cuDNN's order is sequence, head, position, column.
struct Layout {
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
};
/// `parts`: 3 for a part of qkv, 1 for a matrix of its own.
Layout matrix_layout(const AttentionShape& shape, const AttentionShape& block, std::size_t parts) {
  const auto row = static_cast<std::int64_t>(parts * shape.dim());
  const auto context = static_cast<std::int64_t>(shape.context);
  const auto head_dim = static_cast<std::int64_t>(shape.head_dim);
  return {{static_cast<std::int64_t>(block.batch), static_cast<std::int64_t>(block.heads), context, head_dim},
          {context * row, head_dim, row, 1}};
}
Layout log_sums_layout(const AttentionShape& shape, const AttentionShape& block) {
  const auto context = static_cast<std::int64_t>(shape.context);
  return {{static_cast<std::int64_t>(block.batch), static_cast<std::int64_t>(block.heads), context, 1},
          {static_cast<std::int64_t>(shape.heads) * context, context, 1, 1}};
}

Tensor input(Graph& graph, Name name, const Layout& layout) {
  return graph.tensor(Tensor_attributes().set_uid(name).set_dim(layout.dims).set_stride(layout.strides));
}
void output(const Tensor& tensor, Name name, const Layout& layout) {
  tensor->set_output(true).set_uid(name).set_dim(layout.dims).set_stride(layout.strides);
}

}  // namespace

struct FusedAttention::Plan {
  AttentionShape shape;
  AttentionShape block;
  DType type = DType::bf16;
  cudnnHandle_t handle = nullptr;
  Graph forward;
  Graph backward;
  std::size_t forward_bytes = 0;
  std::size_t backward_bytes = 0;

  Plan(cudnnHandle_t on, const AttentionShape& whole, DType of_type)
      : shape(whole),
        block(block_of(whole)),
        type(of_type),
        handle(on),
        forward(empty_graph(type)),
        backward(empty_graph(type)) {
    describe_forward();
    describe_backward();
  }

  /// Returns whether cuDNN has kernels for both passes.
  bool build() { return build(forward, forward_bytes) && build(backward, backward_bytes); }

  using Addresses = std::unordered_map<std::int64_t, void*>;
  /// Calls a graph for each block. addresses_of(first sequence, first head): where the block's tensors lie.
  template <class AddressesOf>
  void run(const Graph& graph, cudaStream_t stream, void* scratch, AddressesOf addresses_of) const {
    check_cudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
    for (std::size_t sequence = 0; sequence < shape.batch; sequence += block.batch)
      for (std::size_t head = 0; head < shape.heads; head += block.heads) {
        Addresses addresses = addresses_of(sequence, head);
        if (const auto error = graph.execute(handle, addresses, scratch); error.is_bad())
          fail(ErrorKind::bug, "cuDNN: attention of {} heads of {}, context {}: {}", shape.heads, shape.head_dim,
               shape.context, error.err_msg);
      }
  }
  /// The first element of a block in a matrix of the rows' parts.
  void* at(const void* matrix, std::size_t parts, std::size_t part, std::size_t sequence, std::size_t head) const {
    const std::size_t element =
        sequence * shape.context * parts * shape.dim() + part * shape.dim() + head * shape.head_dim;
    return const_cast<char*>(static_cast<const char*>(matrix)) + element * size_bytes(type);
  }
  void* at_log_sums(const float* log_sums, std::size_t sequence, std::size_t head) const {
    return const_cast<float*>(log_sums) + (sequence * shape.heads + head) * shape.context;
  }

 private:
  void describe_forward() {
    const Layout part = matrix_layout(shape, block, 3);
    const auto [out, log_sums] =
        forward.sdpa(input(forward, kQuery, part), input(forward, kKey, part), input(forward, kValue, part),
                     cudnn_frontend::graph::SDPA_attributes()
                         .set_name("attention")
                         .set_generate_stats(true)
                         .set_causal_mask(true)
                         .set_attn_scale(scale_of(shape)));
    output(out, kOut, matrix_layout(shape, block, 1));
    output(log_sums, kLogSums, log_sums_layout(shape, block));
    log_sums->set_data_type(DataType_t::FLOAT);
  }
  void describe_backward() {
    const Layout part = matrix_layout(shape, block, 3);
    const Layout whole = matrix_layout(shape, block, 1);
    const Tensor log_sums = input(backward, kLogSums, log_sums_layout(shape, block));
    log_sums->set_data_type(DataType_t::FLOAT);
    const auto [d_query, d_key, d_value] = backward.sdpa_backward(
        input(backward, kQuery, part), input(backward, kKey, part), input(backward, kValue, part),
        input(backward, kOut, whole), input(backward, kDOut, whole), log_sums,
        cudnn_frontend::graph::SDPA_backward_attributes()
            .set_name("attention_backward")
            .set_causal_mask(true)
            .set_attn_scale(scale_of(shape))
            .set_deterministic_algorithm(true));
    output(d_query, kDQuery, part);
    output(d_key, kDKey, part);
    output(d_value, kDValue, part);
  }
  bool build(Graph& graph, std::size_t& bytes) {
    std::int64_t size = 0;
    if (graph.validate().is_bad() || graph.build_operation_graph(handle).is_bad() ||
        graph.create_execution_plans({cudnn_frontend::HeurMode_t::A}).is_bad() ||
        graph.check_support(handle).is_bad() || graph.build_plans(handle).is_bad() ||
        graph.get_workspace_size(size).is_bad())
      return false;
    bytes = static_cast<std::size_t>(size);
    return true;
  }
};

struct FusedAttention::Plans {
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, DType>;

  Plans() { check_cudnn(cudnnCreate(&handle), "cudnnCreate"); }
  ~Plans() {
    by_key.clear();
    cudnnDestroy(handle);
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  cudnnHandle_t handle = nullptr;
  std::map<Key, std::shared_ptr<const Plan>> by_key;
};

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

std::shared_ptr<const FusedAttention::Plan> FusedAttention::plan(const AttentionShape& shape, DType type) {
  if ((type != DType::bf16 && type != DType::f16) || shape.head_dim % 8 != 0) return nullptr;
  // Up to 9.15 the frontend passes such contexts as arrays of the host, which a CUDA graph would read when they are
  // gone.
  if (shape.context % 128 != 0 && cudnnGetVersion() <= 91500) return nullptr;
  if (!plans_) plans_ = std::make_shared<Plans>();
  const Plans::Key key{shape.batch, shape.context, shape.heads, shape.head_dim, type};
  auto at = plans_->by_key.find(key);
  if (at == plans_->by_key.end()) {
    auto plan = std::make_shared<Plan>(plans_->handle, shape, type);
    at = plans_->by_key.emplace(key, plan->build() ? plan : nullptr).first;
  }
  return at->second;
}

std::size_t FusedAttention::forward_bytes(const Plan& plan) { return plan.forward_bytes; }
std::size_t FusedAttention::backward_bytes(const Plan& plan) { return plan.backward_bytes; }

void FusedAttention::forward(const Plan& plan, cudaStream_t stream, ConstElements qkv, Elements out, float* log_sums,
                             void* scratch) {
  plan.run(plan.forward, stream, scratch, [&](std::size_t sequence, std::size_t head) {
    return Plan::Addresses{{kQuery, plan.at(qkv.data(), 3, 0, sequence, head)},
                           {kKey, plan.at(qkv.data(), 3, 1, sequence, head)},
                           {kValue, plan.at(qkv.data(), 3, 2, sequence, head)},
                           {kOut, plan.at(out.data(), 1, 0, sequence, head)},
                           {kLogSums, plan.at_log_sums(log_sums, sequence, head)}};
  });
}

void FusedAttention::backward(const Plan& plan, cudaStream_t stream, ConstElements qkv, ConstElements out,
                              const float* log_sums, ConstElements d_out, Elements d_qkv, void* scratch) {
  plan.run(plan.backward, stream, scratch, [&](std::size_t sequence, std::size_t head) {
    return Plan::Addresses{
        {kQuery, plan.at(qkv.data(), 3, 0, sequence, head)},    {kKey, plan.at(qkv.data(), 3, 1, sequence, head)},
        {kValue, plan.at(qkv.data(), 3, 2, sequence, head)},    {kOut, plan.at(out.data(), 1, 0, sequence, head)},
        {kLogSums, plan.at_log_sums(log_sums, sequence, head)}, {kDOut, plan.at(d_out.data(), 1, 0, sequence, head)},
        {kDQuery, plan.at(d_qkv.data(), 3, 0, sequence, head)}, {kDKey, plan.at(d_qkv.data(), 3, 1, sequence, head)},
        {kDValue, plan.at(d_qkv.data(), 3, 2, sequence, head)}};
  });
}

}  // namespace psring::worker::cuda
