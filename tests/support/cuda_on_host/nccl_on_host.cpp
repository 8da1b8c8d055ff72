#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#include <psring/common/base/elements.h>

namespace {

using cuda_on_host::die;
namespace fs = std::filesystem;

/// The arguments of an operation on which all ranks have to agree.
struct Call {
  enum class Kind { all_reduce, reduce_scatter, all_gather, reduce, broadcast, send, recv } kind;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  friend bool operator==(const Call&, const Call&) = default;
};
/// Where a vector lies in memory that is registered; all null: in none.
struct Place {
  const std::byte* piece = nullptr;
  std::size_t offset = 0;
};
struct Op {
  Call call;
  const void* from;
  void* to;
  int peer;  ///< of a message
  ncclComm_t comm;
  cudaStream_t stream;
};

/// The contribution of a rank to an operation.
struct Given {
  Call call;
  Place place;
  std::vector<std::byte> data;
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
void reduce(const std::vector<Given>& all, std::size_t begin, void* to) {
  const auto [kind, count, type, op, root] = all[0].call;
  if (op != ncclSum && op != ncclAvg) die("a reduction that is not emulated");
  std::vector<float> sum(count);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const psring::ConstElements values(all[r].data.data() + begin * bytes_of(type), count, float_type(type));
    std::vector<float> own(count);
    psring::convert(values, own);
    if (op == ncclAvg) psring::multiply(own, 1.0F / static_cast<float>(all.size()));
    psring::round_to(float_type(type), own);
    if (r == 0)
      sum = own;
    else
      psring::add(sum, own);
    psring::round_to(float_type(type), sum);
  }
  psring::convert(sum, {static_cast<std::byte*>(to), count, float_type(type)});
}

/// All ranks have given what they have: what one gets.
void perform(const std::vector<Given>& all, std::size_t rank, void* to) {
  const Call& call = all[0].call;
  for (const Given& given : all)
    if (given.call != call) die("ranks called different collectives");
  const auto root = static_cast<std::size_t>(call.root);
  auto* at = static_cast<std::byte*>(to);
  switch (call.kind) {
    case Call::Kind::all_reduce:
      return reduce(all, 0, to);
    case Call::Kind::reduce:
      if (rank == root) reduce(all, 0, to);
      return;
    case Call::Kind::reduce_scatter:
      return reduce(all, rank * call.count, to);
    case Call::Kind::all_gather:
      for (const Given& given : all) at = std::copy(given.data.begin(), given.data.end(), at);
      return;
    case Call::Kind::broadcast:
      std::copy(all[root].data.begin(), all[root].data.end(), at);
      return;
    default:
      die("not a collective");
  }
}

/// A folder in which ranks meet, threads of one process or processes: what each gives is a file.
class World {
 public:
  World(std::filesystem::path folder, std::size_t ranks) : folder_(std::move(folder)), ranks_(ranks) {}

  std::size_t ranks() const { return ranks_; }
  void tell(const std::string& what, std::size_t rank) const { write(name(what, rank), {}); }
  bool all_told(const std::string& what) const {
    for (std::size_t r = 0; r < ranks_; ++r)
      if (!fs::exists(folder_ / name(what, r))) return false;
    return true;
  }

  void give(const std::string& key, std::size_t who, const Given& given) const {
    std::vector<std::byte> bytes(kHead + given.data.size());
    std::memcpy(bytes.data(), &given.call, sizeof(Call));
    std::memcpy(bytes.data() + sizeof(Call), &given.place, sizeof(Place));
    std::copy(given.data.begin(), given.data.end(), bytes.begin() + kHead);
    write(name(key, who), bytes);
  }
  bool is_given(const std::string& key, std::size_t who) const { return fs::exists(folder_ / name(key, who)); }
  Given take(const std::string& key, std::size_t who) const {
    std::ifstream file(folder_ / name(key, who), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (bytes.size() < kHead) die("a gift without a call");
    Given given{};
    std::memcpy(&given.call, bytes.data(), sizeof(Call));
    std::memcpy(&given.place, bytes.data() + sizeof(Call), sizeof(Place));
    given.data.resize(bytes.size() - kHead);
    std::transform(bytes.begin() + kHead, bytes.end(), given.data.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    return given;
  }
  /// The last of `all` who says so clears away what was given.
  void gone(const std::string& key, std::size_t all) const {
    const fs::path counter = folder_ / (key + ".gone");
    std::ofstream(counter, std::ios::app) << '.' << std::flush;
    std::error_code error;
    if (fs::file_size(counter, error) < all || error) return;
    for (std::size_t who = 0; who < all; ++who) fs::remove(folder_ / name(key, who), error);
    fs::remove(counter, error);
  }

 private:
  static constexpr std::ptrdiff_t kHead = sizeof(Call) + sizeof(Place);
  static std::string name(const std::string& key, std::size_t who) { return key + '.' + std::to_string(who); }
  /// It is there as a whole, or not at all.
  void write(const std::string& file, std::span<const std::byte> bytes) const {
    const fs::path aside = folder_ / (file + ".aside");
    std::ofstream(aside, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    std::error_code error;
    fs::rename(aside, folder_ / file, error);  // who began it may have ended it
  }

  fs::path folder_;
  std::size_t ranks_;
};

/// The folders of worlds that this process began, which are removed at its end.
struct Folders {
  ~Folders() {
    std::error_code error;
    for (const fs::path& each : all) fs::remove_all(each, error);
  }
  std::mutex mutex;
  std::vector<fs::path> all;
} folders;

}  // namespace

struct ncclOnHost {
  ncclOnHost(const fs::path& folder, std::size_t ranks, std::size_t of) : world(folder, ranks), rank(of) {}

  const World world;
  const std::size_t rank;
  bool aborted = false;  ///< guarded by `aborting`
  std::atomic<int> queued{0};
  std::mutex mutex;
  std::vector<std::function<void()>> later;  ///< told, and not queued yet
  int asked = 0;                             ///< since then
  bool joined = false;                       ///< by all
  bool finalized = false;
  std::map<std::string, std::uint64_t> numbers;        ///< of the next collective, and of the next message of a pair
  std::map<const std::byte*, std::size_t> registered;  ///< bytes, by where they begin
  std::map<const std::byte*, std::vector<const std::byte*>>
      registered_of_all;  ///< by own piece: what ranks had with it
};

namespace {

thread_local int group_depth = 0;
thread_local std::vector<Op> group;
thread_local std::vector<ncclComm_t> aborted;

/// Keeps an aborted communicator, because callers may still ask for its state.
void keep(ncclComm_t comm) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<ncclComm_t>;
  const std::scoped_lock lock(mutex);
  kept.push_back(comm);
}

/// Memory for which ncclMemAlloc was asked, and how often each piece is registered.
struct Pieces {
  std::mutex mutex;
  std::map<const std::byte*, int> registrations;

  void change(const std::byte* piece, int by) {
    const std::scoped_lock lock(mutex);
    const auto at = registrations.find(piece);
    if (at == registrations.end()) die("what is registered is not ncclMemAlloc's");
    at->second += by;
  }
} pieces;

void forget_registered(ncclComm_t comm) {
  for (const auto& [piece, bytes] : comm->registered) pieces.change(piece, -1);
  comm->registered.clear();
}

Place place_of(ncclComm_t comm, const void* of) {
  const auto* const at = static_cast<const std::byte*>(of);
  auto piece = comm->registered.upper_bound(at);
  if (piece == comm->registered.begin()) return {};
  --piece;
  if (at >= piece->first + piece->second) return {};
  return {piece->first, static_cast<std::size_t>(at - piece->first)};
}

/// The place of the memory that all ranks register alike. A message must not use registered memory, because sender and
/// receiver have pieces of different sizes: NCCL waits for ever if only one side is registered.
Place place_of(const Op& op) {
  switch (op.call.kind) {
    case Call::Kind::send:
    case Call::Kind::recv:
      if (place_of(op.comm, op.call.kind == Call::Kind::send ? op.from : op.to).piece != nullptr)
        die("a message of memory that is registered");
      return {};
    case Call::Kind::reduce:
    case Call::Kind::reduce_scatter:
      return place_of(op.comm, op.from);
    default:
      return place_of(op.comm, op.to);
  }
}

/// Registered memory is found by what it is on another rank.
void check_places(ncclComm_t comm, const std::vector<Given>& all) {
  const Place own = all[comm->rank].place;
  std::vector<const std::byte*> of_all;
  for (const Given& given : all) {
    if (given.place.offset != own.offset || (given.place.piece == nullptr) != (own.piece == nullptr))
      die("ranks with memory that is registered came with different places of it");
    of_all.push_back(given.place.piece);
  }
  if (own.piece != nullptr && comm->registered_of_all.emplace(own.piece, of_all).first->second != of_all)
    die("ranks with memory that is registered came with other pieces than before");
}

/// An operation, and who gives what to it: all ranks, or a sender (0) and a receiver (1).
struct Meeting {
  Op op;
  Place place;
  std::string key;
  std::size_t who;
  std::size_t all;
};

Meeting meeting_of(const Op& op) {
  const auto rank = static_cast<int>(op.comm->rank);
  std::string key = "all";
  std::size_t who = op.comm->rank;
  std::size_t all = op.comm->world.ranks();
  if (op.call.kind == Call::Kind::send || op.call.kind == Call::Kind::recv) {
    const bool sends = op.call.kind == Call::Kind::send;
    key = "from-" + std::to_string(sends ? rank : op.peer) + "-to-" + std::to_string(sends ? op.peer : rank);
    who = sends ? 0 : 1;
    all = 2;
  }
  const std::uint64_t number = op.comm->numbers[key]++;
  return {op, place_of(op), key + '.' + std::to_string(number), who, all};
}

std::size_t bytes_given(const Op& op) {
  const std::size_t bytes = op.call.count * bytes_of(op.call.type);
  switch (op.call.kind) {
    case Call::Kind::recv:
      return 0;
    case Call::Kind::broadcast:
      return op.comm->rank == static_cast<std::size_t>(op.call.root) ? bytes : 0;
    case Call::Kind::reduce_scatter:
      return bytes * op.comm->world.ranks();
    default:
      return bytes;
  }
}

void receive(const std::vector<Given>& pair, const Op& op) {
  if (pair[0].call.count != pair[1].call.count || pair[0].call.type != pair[1].call.type)
    die("a message of another size");
  if (op.call.kind == Call::Kind::recv)
    std::copy(pair[0].data.begin(), pair[0].data.end(), static_cast<std::byte*>(op.to));
}

/// Communicators are aborted together: who sees that one is, sees it of all.
std::mutex aborting;

bool is_aborted(ncclComm_t comm) {
  const std::scoped_lock lock(aborting);
  return comm->aborted;
}

/// In the stream's thread: the ops of a group, whose order does not matter. What is aborted ends, undone, and gives
/// nothing to the ranks that have not aborted theirs yet.
void run(ncclComm_t comm, const std::vector<Meeting>& meetings) {
  if (is_aborted(comm)) return;
  const World& world = comm->world;
  cuda_on_host::inside([&] {
    for (const auto& [op, place, key, who, all] : meetings) {
      const auto* const from = static_cast<const std::byte*>(op.from);
      world.give(key, who, {op.call, place, {from, from + bytes_given(op)}});
    }
  });
  for (const auto& [op, place, key, who, all] : meetings) {
    for (std::size_t other = 0; other < all; ++other)
      while (!world.is_given(key, other)) {
        if (is_aborted(comm)) return;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    std::vector<Given> given;
    for (std::size_t other = 0; other < all; ++other) given.push_back(world.take(key, other));
    const bool message = op.call.kind == Call::Kind::send || op.call.kind == Call::Kind::recv;
    if (!message) check_places(comm, given);
    cuda_on_host::inside([&, &to = op] { message ? receive(given, to) : perform(given, comm->rank, to.to); });
    world.gone(key, all);
  }
}

void queue(const std::vector<Op>& ops) {
  if (ops.empty()) return;
  ncclComm_t comm = ops[0].comm;
  cudaStream_t stream = ops[0].stream;
  auto meetings = std::make_shared<std::vector<Meeting>>();
  for (const Op& op : ops) {
    if (op.comm != comm || op.stream != stream) die("a group of several communicators or streams");
    meetings->push_back(meeting_of(op));
  }
  const std::scoped_lock lock(comm->mutex);
  comm->asked = 0;
  comm->later.emplace_back([comm, stream, meetings] {
    ++comm->queued;
    cuda_on_host::queue_blocking(stream, [comm, meetings] {
      run(comm, *meetings);
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
/// The folder's name is the id.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const char* const place = std::getenv("PSRING_TEST_FOLDER");
  std::string folder = (place != nullptr ? fs::path(place) : fs::temp_directory_path()) / "nccl-on-host-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr || folder.size() >= sizeof id->internal) die("no folder to meet in");
  std::strcpy(id->internal, folder.c_str());
  const std::scoped_lock lock(folders.mutex);
  folders.all.emplace_back(folder);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) die("a communicator that blocks");
  *comm = new ncclOnHost(id.internal, static_cast<std::size_t>(ranks), static_cast<std::size_t>(rank));
  (*comm)->world.tell("joined", (*comm)->rank);
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = ncclInProgress;
  const std::scoped_lock lock(comm->mutex);
  comm->joined = comm->joined || comm->world.all_told("joined");
  if (!comm->joined) return ncclSuccess;
  if (comm->finalized && !comm->world.all_told("finalized")) return ncclSuccess;
  if (!comm->later.empty() && ++comm->asked < 2) return ncclSuccess;
  for (const auto& work : std::exchange(comm->later, {})) work();
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::scoped_lock lock(comm->mutex);
  comm->finalized = true;
  comm->world.tell("finalized", comm->rank);
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm->registered.empty()) die("the end of a communicator with memory that is registered");
  delete comm;
  return ncclSuccess;
}
/// As the library, it waits until what is queued with a communicator has ended.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (group_depth == 0) die("an abort outside of a group");
  aborted.push_back(comm);
  return ncclInProgress;
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  if (cudaMalloc(memory, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  const std::scoped_lock lock(pieces.mutex);
  pieces.registrations.emplace(static_cast<const std::byte*>(*memory), 0);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  {
    const std::scoped_lock lock(pieces.mutex);
    const auto piece = pieces.registrations.extract(static_cast<const std::byte*>(memory));
    if (!piece) die("ncclMemFree of what ncclMemAlloc did not give");
    if (piece.mapped() != 0) die("ncclMemFree of memory that is registered");
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, std::size_t bytes, void** handle) {
  const auto* const piece = static_cast<const std::byte*>(memory);
  pieces.change(piece, 1);
  if (!comm->later.empty() || !comm->registered.emplace(piece, bytes).second)
    die("memory is registered twice, or with a communicator that is not through with a call");
  *handle = memory;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  if (comm->registered.erase(static_cast<const std::byte*>(handle)) != 1) die("what is not registered");
  pieces.change(static_cast<const std::byte*>(handle), -1);
  return ncclSuccess;
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
  {
    const std::scoped_lock lock(aborting);
    for (ncclComm_t comm : aborted) comm->aborted = true;
  }
  for (ncclComm_t comm : std::exchange(aborted, {})) {
    while (comm->queued > 0) std::this_thread::yield();
    forget_registered(comm);
    keep(comm);
  }
  return ncclInProgress;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return tell({{Call::Kind::all_reduce, count, type, op, 0}, from, to, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return tell({{Call::Kind::reduce_scatter, count, type, op, 0}, from, to, 0, comm, stream});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return tell({{Call::Kind::all_gather, count, type, ncclSum, 0}, from, to, 0, comm, stream});
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return tell({{Call::Kind::reduce, count, type, op, root}, from, to, 0, comm, stream});
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return tell({{Call::Kind::broadcast, count, type, ncclSum, root}, from, to, 0, comm, stream});
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return tell({{Call::Kind::send, count, type, ncclSum, 0}, from, nullptr, peer, comm, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return tell({{Call::Kind::recv, count, type, ncclSum, 0}, nullptr, to, peer, comm, stream});
}
