#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include <psring/common/base/text/error.h>
#include <psring/common/net/host.h>
#include <psring/ring/cuda/communicator.h>
#include <psring/ring/cuda/nccl_calls.h>

namespace psring::ring::cuda {
namespace {

ncclDataType_t type_of(ElementType type) {
  static constexpr ncclDataType_t kTypes[kDTypes] = {ncclFloat32, ncclFloat64, ncclFloat16, ncclBfloat16,
                                                     ncclInt8,    ncclUint8,   ncclInt32,   ncclInt64};
  if (type.located) fail(ErrorKind::usage, "NCCL has no {}", to_string(type));
  return kTypes[static_cast<std::size_t>(type.dtype)];
}

ncclRedOp_t op_of(const ReduceOp& op) {
  static constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclProd, ncclMin,
                                         ncclMax};  // in the order of ReduceOp::Kind
  const auto kind = static_cast<std::size_t>(op.kind());
  if (kind >= std::size(kOps)) fail(ErrorKind::usage, "NCCL has no {}", op.name());
  return kOps[kind];
}

/// The k-th ranges of all ranks as one range, if they are equal and lie in the ranks' order; otherwise nothing.
std::optional<Range> together(const Parts& parts, std::size_t k) {
  const Range first = parts[0][k];
  for (std::size_t r = 1; r < parts.size(); ++r) {
    const Range part = parts[r][k];
    if (part.size() != first.size() || part.begin != parts[r - 1][k].end) return std::nullopt;
  }
  return Range{first.begin, parts.back()[k].end};
}

std::size_t most_ranges(const Parts& parts) {
  std::size_t most = 0;
  for (const auto& ranges : parts) most = std::max(most, ranges.size());
  return most;
}

/// Calls `at_once` with the range of all ranks and with this rank's, where the ranges lie together; otherwise
/// `one_by_one` with each owner's range.
template <class OneByOne, class AtOnce>
void for_each_part(Vector data, const Parts& parts, std::size_t rank, const OneByOne& one_by_one,
                   const AtOnce& at_once) {
  const bool alike = std::ranges::all_of(parts, [&](const auto& own) { return own.size() == parts[0].size(); });
  for (std::size_t k = 0; k < most_ranges(parts); ++k) {
    const std::optional<Range> all = alike ? together(parts, k) : std::nullopt;
    if (all) {
      at_once(data.part(*all), data.part(parts[rank][k]));
      continue;
    }
    for (std::size_t owner = 0; owner < parts.size(); ++owner)
      if (k < parts[owner].size() && parts[owner][k].size() > 0)
        one_by_one(data.part(parts[owner][k]), static_cast<int>(owner));
  }
}

}  // namespace

std::string nccl_version() {
  int code = 0;
  ncclGetVersion(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

void prepare_nccl(const NcclOptions& options) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); };
  int code = 0;
  ncclGetVersion(&code);
  // Before 2.26, ncclMemAlloc gave pieces of up to 512 MiB, and NCCL did not keep the order of several groups.
  if (code < 22600) fail(ErrorKind::usage, "--device cuda: NCCL {}: 2.26 or later is needed", nccl_version());
  if (!options.interface.empty()) set("NCCL_SOCKET_IFNAME", "=" + options.interface);
  set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");  // several groups run in the order in which they are called
  if (!options.share_gpu) return;
  set("NCCL_HOSTID", fmt::format("psring-{}-{}", net::host_name(), ::getpid()));
  set("NCCL_P2P_DISABLE", "1");
  set("NCCL_SHM_DISABLE", "1");
  set("NCCL_NET", "Socket");
  if (code >= 23000) set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
}

psring::cuda::MemorySource nccl_memory() {
  return {"ncclMemAlloc",
          [](std::size_t bytes) {
            void* memory = nullptr;
            if (ncclMemAlloc(&memory, bytes) != ncclSuccess) {
              cudaGetLastError();  // clear the error, so that the next call does not report it
              memory = nullptr;
            }
            return static_cast<std::byte*>(memory);
          },
          [](std::byte* memory) { ncclMemFree(memory); }};
}

void queue_collective(const Request& request, std::size_t rank, ncclComm_t communicator, cudaStream_t stream) {
  const Vector data = request.data;
  const ncclDataType_t type = type_of(data.type);
  const auto broadcast = [&](Vector part, int root) {
    require(ncclBroadcast(part.data, part.data, part.count, type, root, communicator, stream), "ncclBroadcast");
  };
  switch (request.call.collective) {
    case Collective::all_reduce:
      return require(ncclAllReduce(data.data, data.data, data.count, type, op_of(request.op), communicator, stream),
                     "ncclAllReduce");
    case Collective::reduce_scatter: {
      const ncclRedOp_t op = op_of(request.op);
      const auto reduce_to = [&](Vector part, int owner) {
        require(ncclReduce(part.data, part.data, part.count, type, op, owner, communicator, stream), "ncclReduce");
      };
      return for_each_part(data, *request.parts, rank, reduce_to, [&](Vector all, Vector own) {
        require(ncclReduceScatter(all.data, own.data, own.count, type, op, communicator, stream), "ncclReduceScatter");
      });
    }
    case Collective::all_gather:
      return for_each_part(data, *request.parts, rank, broadcast, [&](Vector all, Vector own) {
        require(ncclAllGather(own.data, all.data, own.count, type, communicator, stream), "ncclAllGather");
      });
    default:
      return broadcast(data, static_cast<int>(request.call.root));
  }
}

void queue_message(const Request& request, ncclComm_t communicator, cudaStream_t stream) {
  const Vector data = request.data;
  const int peer = static_cast<int>(request.peer);
  require(request.call.collective == Collective::send
              ? ncclSend(data.data, data.count, type_of(data.type), peer, communicator, stream)
              : ncclRecv(data.data, data.count, type_of(data.type), peer, communicator, stream),
          "ncclSend");
}

}  // namespace psring::ring::cuda
