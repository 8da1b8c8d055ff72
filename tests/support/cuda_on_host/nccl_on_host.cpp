#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include <psring/common/base/elements.h>

namespace {

using cuda_on_host::die;

struct Op {
  enum class Kind { all_reduce, reduce_scatter, all_gather, reduce, broadcast, send, recv } kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // root
  ncclComm_t comm;
  cudaStream_t stream;
};

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclFloat64:
    case ncclInt64:
      return 8;
    default:
      return 1;
  }
}

psring::DType float_type(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return psring::DType::f32;
    case ncclFloat16:
      return psring::DType::f16;
    case ncclBfloat16:
      return psring::DType::bf16;
    default:
      die("a reduction of a type that is not emulated");
  }
}

/// The sum of some elements of all, or their mean, each step rounded to their type.
void reduce(const std::vector<const Op*>& all, std::size_t begin, std::size_t count, void* to) {
  const ncclDataType_t type = all[0]->type;
  if (all[0]->op != ncclSum && all[0]->op != ncclAvg) die("a reduction that is not emulated");
  std::vector<float> sum(count);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const psring::ConstElements values(static_cast<const std::byte*>(all[r]->from) + begin * bytes_of(type), count,
                                       float_type(type));
    std::vector<float> own(count);
    psring::convert(values, own);
    if (all[0]->op == ncclAvg) psring::multiply(own, 1.0F / static_cast<float>(all.size()));
    psring::round_to(float_type(type), own);
    if (r == 0)
      sum = own;
    else
      psring::add(sum, own);
    psring::round_to(float_type(type), sum);
  }
  psring::convert(sum, {static_cast<std::byte*>(to), count, float_type(type)});
}

/// All ranks are here: what they want done.
void perform(const std::vector<const Op*>& all) {
  const Op& first = *all[0];
  for (const Op* op : all)
    if (op->kind != first.kind || op->count != first.count || op->type != first.type || op->op != first.op ||
        op->peer != first.peer)
      die("ranks called different collectives");
  const std::size_t ranks = all.size();
  const std::size_t bytes = first.count * bytes_of(first.type);
  const auto to_all = [&](const std::vector<std::byte>& result) {
    for (const Op* op : all) std::copy(result.begin(), result.end(), static_cast<std::byte*>(op->to));
  };
  switch (first.kind) {
    case Op::Kind::all_reduce: {
      std::vector<std::byte> result(bytes);
      reduce(all, 0, first.count, result.data());
      return to_all(result);
    }
    case Op::Kind::reduce: {
      std::vector<std::byte> result(bytes);
      reduce(all, 0, first.count, result.data());
      std::copy(result.begin(), result.end(), static_cast<std::byte*>(all[static_cast<std::size_t>(first.peer)]->to));
      return;
    }
    case Op::Kind::reduce_scatter: {
      std::vector<std::vector<std::byte>> results(ranks, std::vector<std::byte>(bytes));
      for (std::size_t r = 0; r < ranks; ++r) reduce(all, r * first.count, first.count, results[r].data());
      for (std::size_t r = 0; r < ranks; ++r)
        std::copy(results[r].begin(), results[r].end(), static_cast<std::byte*>(all[r]->to));
      return;
    }
    case Op::Kind::all_gather: {
      std::vector<std::byte> result;
      for (const Op* op : all) {
        const auto* const own = static_cast<const std::byte*>(op->from);
        result.insert(result.end(), own, own + bytes);
      }
      return to_all(result);
    }
    case Op::Kind::broadcast: {
      const auto* const root = static_cast<const std::byte*>(all[static_cast<std::size_t>(first.peer)]->from);
      return to_all(std::vector<std::byte>(root, root + bytes));
    }
    default:
      die("not a collective");
  }
}

/// What ranks share.
struct World {
  /// A collective, or a message between two.
  struct Slot {
    std::vector<const Op*> ops;
    std::size_t here = 0;
    std::size_t gone = 0;
    bool done = false;
  };
  /// Sender and receiver, or -1 and -1; and a number.
  using Key = std::pair<std::pair<int, int>, std::uint64_t>;

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t ranks = 0;
  std::size_t joined = 0;
  std::size_t finalized = 0;
  std::map<Key, Slot> slots;
};

std::mutex worlds_mutex;
std::map<std::uint64_t, std::weak_ptr<World>> worlds;
std::uint64_t last_world = 0;

}  // namespace

struct ncclOnHost {
  std::shared_ptr<World> world;
  int rank = 0;
  std::atomic<bool> aborted{false};
  std::atomic<int> queued{0};
  std::mutex mutex;
  std::vector<std::function<void()>> later;  ///< told, and not queued yet
  int asked = 0;                             ///< since then
  bool finalized = false;
  std::map<std::pair<int, int>, std::uint64_t> numbers;  ///< of the next collective, and of the next message of a pair
};

namespace {

thread_local int group_depth = 0;
thread_local std::vector<Op> group;
thread_local std::vector<ncclComm_t> aborted;

bool is_message(const Op& op) { return op.kind == Op::Kind::send || op.kind == Op::Kind::recv; }

World::Key key_of(const Op& op) {
  const std::pair<int, int> pair = op.kind == Op::Kind::send   ? std::pair(op.comm->rank, op.peer)
                                   : op.kind == Op::Kind::recv ? std::pair(op.peer, op.comm->rank)
                                                               : std::pair(-1, -1);
  return {pair, op.comm->numbers[pair]++};
}

void deliver(const Op& sent, const Op& received) {
  if (sent.count != received.count || sent.type != received.type) die("a message of another size");
  std::memcpy(received.to, sent.from, sent.count * bytes_of(sent.type));
}

/// In the stream's thread: the ops of a group, whose order does not matter. What is aborted ends, undone.
void run(ncclComm_t comm, const std::vector<std::pair<Op, World::Key>>& ops) {
  World& world = *comm->world;
  std::unique_lock lock(world.mutex);
  for (const auto& [op, key] : ops) {
    World::Slot& slot = world.slots[key];
    slot.ops.resize(is_message(op) ? 2 : world.ranks);
    slot.ops[is_message(op) ? (op.kind == Op::Kind::recv ? 1 : 0) : static_cast<std::size_t>(comm->rank)] = &op;
    if (++slot.here < slot.ops.size()) continue;
    cuda_on_host::inside([&] { is_message(op) ? deliver(*slot.ops[0], *slot.ops[1]) : perform(slot.ops); });
    slot.done = true;
    world.changed.notify_all();
  }
  for (const auto& [op, key] : ops) {
    World::Slot& slot = world.slots[key];
    world.changed.wait(lock, [&] { return slot.done || comm->aborted; });
    if (!slot.done)
      --slot.here;  // it leaves for good, and what it was waited for is never complete
    else if (++slot.gone == slot.ops.size())
      world.slots.erase(key);
  }
}

void queue(const std::vector<Op>& ops) {
  if (ops.empty()) return;
  ncclComm_t comm = ops[0].comm;
  cudaStream_t stream = ops[0].stream;
  auto keyed = std::make_shared<std::vector<std::pair<Op, World::Key>>>();
  for (const Op& op : ops) {
    if (op.comm != comm || op.stream != stream) die("a group of several communicators or streams");
    keyed->emplace_back(op, key_of(op));
  }
  const std::scoped_lock lock(comm->mutex);
  comm->asked = 0;
  comm->later.emplace_back([comm, stream, keyed] {
    ++comm->queued;
    cuda_on_host::queue_blocking(stream, [comm, keyed] {
      run(comm, *keyed);
      --comm->queued;
    });
  });
}

ncclResult_t tell(const Op& op) {
  if (group_depth == 0) die("a call outside of a group");
  group.push_back(op);
  return ncclInProgress;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::scoped_lock lock(worlds_mutex);
  ++last_world;
  std::memcpy(id->internal, &last_world, sizeof last_world);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) die("a communicator that blocks");
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  const std::scoped_lock lock(worlds_mutex);
  auto world = worlds[number].lock();
  if (!world) worlds[number] = world = std::make_shared<World>();
  *comm = new ncclOnHost;
  (*comm)->world = world;
  (*comm)->rank = rank;
  const std::scoped_lock of_world(world->mutex);
  world->ranks = static_cast<std::size_t>(ranks);
  ++world->joined;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclInProgress;
  {
    const std::scoped_lock lock(comm->world->mutex);
    if (comm->world->joined < comm->world->ranks) return ncclSuccess;
    if (comm->finalized && comm->world->finalized < comm->world->ranks) return ncclSuccess;
  }
  const std::scoped_lock lock(comm->mutex);
  if (!comm->later.empty() && ++comm->asked < 2) return ncclSuccess;
  for (const auto& work : std::exchange(comm->later, {})) work();
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::scoped_lock lock(comm->world->mutex);
  comm->finalized = true;
  ++comm->world->finalized;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
/// As the library, it waits until what is queued with a communicator has ended. The handle stays.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (group_depth == 0) die("an abort outside of a group");
  aborted.push_back(comm);
  return ncclInProgress;
}
const char* ncclGetErrorString(ncclResult_t result) { return result == ncclRemoteError ? "remote error" : "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclInProgress;
  queue(std::exchange(group, {}));
  for (ncclComm_t comm : aborted) {
    comm->aborted = true;
    { const std::scoped_lock lock(comm->world->mutex); }
    comm->world->changed.notify_all();
  }
  for (ncclComm_t comm : std::exchange(aborted, {}))
    while (comm->queued > 0) std::this_thread::yield();
  return ncclInProgress;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return tell({Op::Kind::all_reduce, from, to, count, type, op, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return tell({Op::Kind::reduce_scatter, from, to, count, type, op, 0, comm, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return tell({Op::Kind::all_gather, from, to, count, type, ncclSum, 0, comm, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return tell({Op::Kind::reduce, from, to, count, type, op, root, comm, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return tell({Op::Kind::broadcast, from, to, count, type, ncclSum, root, comm, stream});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return tell({Op::Kind::send, from, nullptr, count, type, ncclSum, peer, comm, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return tell({Op::Kind::recv, nullptr, to, count, type, ncclSum, peer, comm, stream});
}
