#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <psring/common/base/error.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/net/transport.h>
#include <psring/ring/call.h>
#include <psring/ring/cuda/communicator.h>
#include <psring/ring/cuda/nccl_group.h>
#include <psring/ring/cuda/watchdog.h>
#include <psring/ring/plan.h>

namespace psring::ring::cuda {
namespace {

using psring::cuda::Event;
using psring::cuda::Stream;

ncclDataType_t type_of(ElementType type) {
  if (!type.located) switch (type.dtype) {
      case DType::f32:
        return ncclFloat32;
      case DType::f64:
        return ncclFloat64;
      case DType::f16:
        return ncclFloat16;
      case DType::bf16:
        return ncclBfloat16;
      case DType::i8:
        return ncclInt8;
      case DType::u8:
        return ncclUint8;
      case DType::i32:
        return ncclInt32;
      case DType::i64:
        return ncclInt64;
    }
  fail(ErrorKind::usage, "NCCL has no {}", to_string(type));
}

ncclRedOp_t op_of(const ReduceOp& op) {
  switch (op.kind()) {
    case ReduceOp::Kind::sum:
      return ncclSum;
    case ReduceOp::Kind::mean:
      return ncclAvg;
    case ReduceOp::Kind::product:
      return ncclProd;
    case ReduceOp::Kind::min:
      return ncclMin;
    case ReduceOp::Kind::max:
      return ncclMax;
    default:
      fail(ErrorKind::usage, "NCCL has no {}", op.name());
  }
}

std::string version() {
  int code = 0;
  ncclGetVersion(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

/// NCCL is told by its environment, which it reads when it is first used. What is set already stays.
void prepare(const NcclOptions& options) {
  const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 0); };
  int code = 0;
  ncclGetVersion(&code);
  // Before, ncclMemAlloc gave pieces of up to 512 MiB, and the order of several groups was not NCCL's to keep.
  if (code < 22600) fail(ErrorKind::usage, "--device cuda: NCCL {}: 2.26 or later is needed", version());
  if (!options.interface.empty()) set("NCCL_SOCKET_IFNAME", "=" + options.interface);
  set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");  // of several groups: the order in which they are called
  if (!options.share_gpu) return;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  set("NCCL_HOSTID", fmt::format("psring-{}-{}", host, ::getpid()));
  set("NCCL_P2P_DISABLE", "1");
  set("NCCL_SHM_DISABLE", "1");
  set("NCCL_NET", "Socket");
  if (code >= 23000) set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
}

/// The part of all ranks, the k-th range of each, where they are equal and lie in the ranks' order; else nothing.
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

/// Memory that NCCL can register. Null for whatever reason: it does not say which.
constexpr psring::cuda::MemorySource kNccl{"ncclMemAlloc",
                                           [](std::size_t bytes) {
                                             void* memory = nullptr;
                                             if (ncclMemAlloc(&memory, bytes) != ncclSuccess) {
                                               cudaGetLastError();  // not an error of the next call
                                               memory = nullptr;
                                             }
                                             return static_cast<std::byte*>(memory);
                                           },
                                           [](std::byte* memory) { ncclMemFree(memory); }};

class NcclGroup;

class NcclOperation final : public Operation {
 public:
  NcclOperation(NcclGroup& group, std::uint64_t number) : group_(group), number_(number) {}

  bool advance() override;
  void wait() override;
  std::size_t awaited() const override;

 private:
  NcclGroup& group_;
  const std::uint64_t number_;
};

class NcclGroup final : public ProcessGroup {
 public:
  /// `worker`: this rank among all workers.
  NcclGroup(std::unique_ptr<ProcessGroup> host, Device& device, std::shared_ptr<Watchdog> watchdog, ByteLedger* ledger,
            std::size_t worker, bool share_gpu, Nanoseconds patience)
      : host_(std::move(host)),
        workers_(told(*host_, worker)),
        device_(device),
        watchdog_(std::move(watchdog)),
        ledger_(ledger),
        share_gpu_(share_gpu),
        patience_(patience),
        communicator_(*host_, {[this] { watchdog_->check(); }, patience}) {
    watchdog_->add(communicator_);
  }
  /// What is under way ends before the memory that it works on goes; what others do not come to is given up.
  ~NcclGroup() override {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (cudaStreamQuery(stream_) != cudaSuccess) watchdog_->give_up();
    cudaStreamSynchronize(stream_);
    watchdog_->remove(communicator_);
  }

  std::size_t rank() const override { return host_->rank(); }
  std::size_t size() const override { return host_->size(); }

  Work all_reduce(Vector data, const ReduceOp& op) override {
    if (data.processor == nullptr) return host_->all_reduce(data, op);
    return queue(call_of(Collective::all_reduce, data, op), data, {}, [=, this](ncclComm_t comm) {
      require(ncclAllReduce(data.data, data.data, data.count, type_of(data.type), op_of(op), comm, stream_),
              "ncclAllReduce");
    });
  }

  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) override {
    if (data.processor == nullptr) return host_->reduce_scatter(data, parts, op);
    check_parts(parts, data.count, size());
    return queue(call_of(Collective::reduce_scatter, data, op), data, parts, [&](ncclComm_t comm) {
      const auto one_by_one = [&](Vector part, std::size_t owner) {
        require(ncclReduce(part.data, part.data, part.count, type_of(data.type), op_of(op), static_cast<int>(owner),
                           comm, stream_),
                "ncclReduce");
      };
      for_each_part(data, parts, one_by_one, [&](Vector all, Vector own) {
        require(ncclReduceScatter(all.data, own.data, own.count, type_of(data.type), op_of(op), comm, stream_),
                "ncclReduceScatter");
      });
    });
  }

  Work all_gather(Vector data, const Parts& parts) override {
    if (data.processor == nullptr) return host_->all_gather(data, parts);
    check_parts(parts, data.count, size());
    return queue(call_of(Collective::all_gather, data, {}), data, parts, [&](ncclComm_t comm) {
      const auto one_by_one = [&](Vector part, std::size_t owner) {
        require(
            ncclBroadcast(part.data, part.data, part.count, type_of(data.type), static_cast<int>(owner), comm, stream_),
            "ncclBroadcast");
      };
      for_each_part(data, parts, one_by_one, [&](Vector all, Vector own) {
        require(ncclAllGather(own.data, all.data, own.count, type_of(data.type), comm, stream_), "ncclAllGather");
      });
    });
  }

  Work broadcast(Vector data, std::size_t root) override {
    if (data.processor == nullptr) return host_->broadcast(data, root);
    check_rank(root, size());
    Call call = call_of(Collective::broadcast, data, {});
    call.root = static_cast<std::uint32_t>(root);
    return queue(call, data, {}, [&](ncclComm_t comm) {
      require(
          ncclBroadcast(data.data, data.data, data.count, type_of(data.type), static_cast<int>(root), comm, stream_),
          "ncclBroadcast");
    });
  }

  Work barrier() override {
    flush();
    if (newest_) newest_->wait();
    watchdog_->check();
    return host_->barrier();
  }

  Work send(ConstVector data, std::size_t to) override {
    if (data.processor == nullptr) return host_->send(data, to);
    check_rank(to, size());
    messages_.push_back({Collective::send, const_cast<std::byte*>(data.data), data.count, data.type, to});
    return after_messages();
  }
  Work recv(Vector data, std::size_t from) override {
    if (data.processor == nullptr) return host_->recv(data, from);
    check_rank(from, size());
    messages_.push_back({Collective::recv, data.data, data.count, data.type, from});
    return after_messages();
  }

  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) override {
    return std::make_unique<NcclGroup>(host_->split(colour, key), device_, watchdog_, ledger_,
                                       static_cast<std::size_t>(workers_[rank()]), share_gpu_, patience_);
  }

  std::string describe(Collective /*collective*/, std::size_t /*count*/, ElementType /*type*/) const override {
    return fmt::format("NCCL {}, {}", version(),
                       share_gpu_ ? "through its sockets, as workers may share a GPU"
                                  : "between GPUs, from memory that is registered with it");
  }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    const Planner planner{rank(), size(), std::max<std::size_t>(count, 1)};
    const auto bytes = [&](const Plan& plan, std::size_t latencies) {
      return Cost{{plan.sent() * type.bytes(), plan.received() * type.bytes()}, latencies};
    };
    switch (collective) {
      case Collective::all_reduce:
        return bytes(planner.all_reduce(Algorithm::ring, count), latencies(Algorithm::ring, size()));
      case Collective::reduce_scatter:
        return bytes(planner.reduce_scatter(parts, false), size() - 1);
      case Collective::all_gather:
        return bytes(planner.all_gather(parts, false), size() - 1);
      case Collective::broadcast:
        return bytes(planner.broadcast(count, root, false), size() - 1);
      case Collective::send:
        return {{count * type.bytes(), 0}, 1};
      case Collective::recv:
        return {{0, count * type.bytes()}, 1};
      case Collective::barrier:
        break;
    }
    return host_->predict(collective, count, type, parts, root);
  }
  bool sums_in_rank_order(Collective /*reduction*/, ElementType /*type*/) const override { return size() == 1; }
  Moved moved() const override {
    const Moved of_host = host_->moved();
    return {moved_.sent + of_host.sent, moved_.received + of_host.received};
  }
  void account() override { host_->account(); }

  /// Has the operation of this number come to its end?
  bool complete(std::uint64_t number) {
    flush();
    const auto under_way = events_.find(number);
    const bool done = under_way == events_.end() || under_way->second->reached();
    watchdog_->check();  // one that was given up came to its end, too
    if (done) events_.erase(events_.begin(), events_.upper_bound(number));
    return done;
  }
  /// What is queued for the device from now on comes after it.
  void hold(std::uint64_t number) {
    flush();
    watchdog_->check();
    const auto under_way = events_.find(number);
    if (under_way == events_.end() || under_way->second->reached()) return;
    const Device::Stall stall(device_);
    under_way->second->hold(psring::cuda::queue_of(device_).stream);
  }

 private:
  struct Message {
    Collective kind;
    std::byte* data;
    std::size_t count;
    ElementType type;
    std::size_t peer;
  };

  static Call call_of(Collective collective, Vector data, const ReduceOp& op) {
    return {.collective = collective, .op = op.kind(), .type = data.type, .count = data.count};
  }

  /// `at_once` where ranges of all ranks lie together: with them all, and this rank's.
  template <class OneByOne, class AtOnce>
  void for_each_part(Vector data, const Parts& parts, const OneByOne& one_by_one, const AtOnce& at_once) const {
    const bool alike = std::ranges::all_of(parts, [&](const auto& own) { return own.size() == parts[0].size(); });
    for (std::size_t k = 0; k < most_ranges(parts); ++k) {
      const std::optional<Range> all = alike ? together(parts, k) : std::nullopt;
      if (all) {
        at_once(data.part(*all), data.part(parts[rank()][k]));
        continue;
      }
      for (std::size_t owner = 0; owner < parts.size(); ++owner)
        if (k < parts[owner].size() && parts[owner][k].size() > 0) one_by_one(data.part(parts[owner][k]), owner);
    }
  }

  /// After all that the device's queue has now, on a queue of this group's own.
  template <class Body>
  Work queue(const Call& call, Vector data, const Parts& parts, const Body& body) {
    flush();
    begin(data);
    const auto piece = psring::cuda::pool_of(device_).shared_piece(data.data);
    if (piece && size() > 1) communicator_.register_memory(*piece);
    communicator_.call(to_string(call.collective), body);
    count(call.collective, predict(call.collective, data.count, data.type, parts, call.root));
    return work(end(call));
  }
  void begin(Vector data) {
    watchdog_->check();
    check(data.processor == &device_, "a vector of another device");
    Event before;
    before.record(psring::cuda::queue_of(device_).stream);
    before.hold(stream_);
  }
  std::uint64_t end(const Call& call) {
    newest_ = std::make_shared<Event>();
    newest_->record(stream_);
    const std::uint64_t number = next_++;
    events_.emplace(number, newest_);
    while (!events_.empty() && events_.begin()->second->reached()) events_.erase(events_.begin());
    watchdog_->began(newest_, call, number, rank());
    return number;
  }
  Work work(std::uint64_t number) { return Work(std::make_shared<NcclOperation>(*this, number)); }

  /// What messages are of is not registered: a sender's piece may be worth it where the receiver's is not, and NCCL
  /// would wait for ever. They wait for each other, so all that were asked for leave together, once anybody asks for
  /// one of them or calls something else.
  Work after_messages() { return work(next_); }
  void flush() {
    if (messages_.empty()) return;
    const std::vector<Message> messages = std::exchange(messages_, {});
    Call call{.collective = Collective::send};
    for (const Message& message : messages) {
      begin({message.data, message.count, message.type, &device_});
      call.type = message.type;
      call.count += message.count;
    }
    communicator_.call("send and recv", [&](ncclComm_t comm) {
      for (const Message& m : messages)
        require(m.kind == Collective::send
                    ? ncclSend(m.data, m.count, type_of(m.type), static_cast<int>(m.peer), comm, stream_)
                    : ncclRecv(m.data, m.count, type_of(m.type), static_cast<int>(m.peer), comm, stream_),
                "ncclSend");
    });
    for (const Message& message : messages) count_message(message);
    end(call);
  }

  void count(Collective collective, const Moved& moved) {
    const std::size_t n = size();
    if (n == 1) return;
    add(ByteLedger::Direction::sent, std::string(to_string(collective)), (rank() + 1) % n, moved.sent);
    add(ByteLedger::Direction::received, std::string(to_string(collective)), (rank() + n - 1) % n, moved.received);
  }
  void count_message(const Message& message) {
    const auto direction =
        message.kind == Collective::send ? ByteLedger::Direction::sent : ByteLedger::Direction::received;
    add(direction, "message", message.peer, message.count * message.type.bytes());
  }
  void add(ByteLedger::Direction direction, const std::string& operation, std::size_t peer, std::uint64_t bytes) {
    (direction == ByteLedger::Direction::sent ? moved_.sent : moved_.received) += bytes;
    if (ledger_ != nullptr && bytes > 0)
      ledger_->add(direction, operation,
                   net::to_string({net::Role::worker, static_cast<std::uint32_t>(workers_[peer])}), bytes, 0);
  }

  /// What the group's ranks say: each of them its own.
  static std::vector<std::int64_t> told(ProcessGroup& host, std::size_t own) {
    std::vector<std::int64_t> all(host.size());
    all[host.rank()] = static_cast<std::int64_t>(own);
    std::vector<Work> works;
    for (std::size_t r = 0; r < all.size(); ++r) works.push_back(host.broadcast(std::span(all).subspan(r, 1), r));
    for (Work& work : works) work.wait();
    return all;
  }

  static constexpr std::chrono::seconds kPatience{2};
  const std::unique_ptr<ProcessGroup> host_;
  const std::vector<std::int64_t> workers_;  ///< by rank: its rank among all workers
  Device& device_;
  const std::shared_ptr<Watchdog> watchdog_;  ///< shared with the groups that were split off
  ByteLedger* const ledger_;
  const bool share_gpu_;
  const Nanoseconds patience_;
  Stream stream_{Stream::Urgency::high};  // few blocks, for which many of what computes would not make room
  Communicator communicator_;
  std::vector<Message> messages_;  ///< that were asked for, and have not left
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Event>> events_;  ///< by operation: where it ends; not of all that have
  std::shared_ptr<Event> newest_;
  Moved moved_;
};

bool NcclOperation::advance() { return group_.complete(number_); }
void NcclOperation::wait() { group_.hold(number_); }
std::size_t NcclOperation::awaited() const { return (group_.rank() + group_.size() - 1) % group_.size(); }

}  // namespace

std::unique_ptr<ProcessGroup> make_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options) {
  prepare(options);
  // Through sockets nothing is moved from where it is.
  if (!options.share_gpu && host->size() > 1) psring::cuda::pool_of(device).share_through(kNccl, options.register_from);
  ByteLedger* const ledger = options.group.ledger;
  auto watchdog = std::make_shared<Watchdog>(device, std::move(options.group));  // shared by a rank's groups
  const std::size_t worker = host->rank();
  return std::make_unique<NcclGroup>(std::move(host), device, std::move(watchdog), ledger, worker, options.share_gpu,
                                     options.patience);
}

}  // namespace psring::ring::cuda
