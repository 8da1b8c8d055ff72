#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <psring/common/base/text/error.h>
#include <psring/common/device/cuda/device.h>
#include <psring/common/device/cuda/handles.h>
#include <psring/common/net/transport.h>
#include <psring/ring/cuda/communicator.h>
#include <psring/ring/cuda/nccl_calls.h>
#include <psring/ring/cuda/nccl_group.h>
#include <psring/ring/cuda/watchdog.h>
#include <psring/ring/plan/algorithm.h>
#include <psring/ring/plan/collective_plans.h>
#include <psring/ring/split.h>

namespace psring::ring::cuda {
namespace {

using psring::cuda::Event;
using psring::cuda::Stream;

class NcclGroup;

class NcclOperation final : public Operation {
 public:
  NcclOperation(NcclGroup& group, std::uint64_t number) : group_(group), number_(number) {}

  bool advance() override;
  void wait() override;
  std::vector<std::size_t> awaited() const override;

 private:
  NcclGroup& group_;
  const std::uint64_t number_;
};

class NcclGroup final : public ProcessGroup {
 public:
  /// `worker`: this rank among all workers.
  NcclGroup(std::unique_ptr<ProcessGroup> host, Device& device, std::shared_ptr<Watchdog> watchdog, ByteLedger* ledger,
            std::size_t worker, bool share_gpu, Nanoseconds patience)
      : ProcessGroup(host->rank(), host->size()),
        host_(std::move(host)),
        workers_(exchange_workers(*host_, worker)),
        device_(device),
        watchdog_(std::move(watchdog)),
        ledger_(ledger),
        share_gpu_(share_gpu),
        patience_(patience),
        communicator_(*host_, {[this] { watchdog_->check(); }, patience}) {
    share_group_numbers(*host_);
    watchdog_->add(communicator_);
  }
  /// Operations in flight end before their memory goes. If other ranks do not take part in them, they are aborted.
  ~NcclGroup() override {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (cudaStreamQuery(stream_) == cudaErrorNotReady && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (cudaStreamQuery(stream_) != cudaSuccess) watchdog_->give_up();
    cudaStreamSynchronize(stream_);
    watchdog_->remove(communicator_);
  }

  Work start(const Request& request) override {
    if (request.call.collective == Collective::barrier) return barrier_after_all(request);
    if (request.data.processor == nullptr) return host_->start(request);
    if (request.call.collective < Collective::send) return queue(request);
    messages_.push_back(request);
    return work(next_);
  }
  std::unique_ptr<ProcessGroup> subgroup(const Split& split) override {
    return std::make_unique<NcclGroup>(host_->subgroup(split), device_, watchdog_, ledger_,
                                       static_cast<std::size_t>(workers_[rank()]), share_gpu_, patience_);
  }

  std::string describe(Collective /*collective*/, std::size_t /*count*/, ElementType /*type*/) const override {
    return fmt::format("NCCL {}, {}", nccl_version(),
                       share_gpu_ ? "through its sockets, as workers may share a GPU"
                                  : "between GPUs, from memory that is registered with it");
  }
  /// Returns the bytes of a ring, because NCCL does not report the bytes that it moves.
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    const Planner planner{rank(), size(), std::max<std::size_t>(count, 1)};
    const auto bytes = [&](const Plan& plan, std::size_t latencies) {
      return Cost{{plan.sent() * type.bytes(), plan.received() * type.bytes()}, latencies};
    };
    switch (collective) {
      case Collective::all_reduce:
        return bytes(plan_all_reduce(Algorithm::ring, planner, count), latencies(Algorithm::ring, size()));
      case Collective::reduce_scatter:
        return bytes(plan_reduce_scatter(planner, parts, false), size() - 1);
      case Collective::all_gather:
        return bytes(plan_all_gather(planner, parts, false), size() - 1);
      case Collective::broadcast:
        return bytes(plan_broadcast(planner, count, root, false), size() - 1);
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

  /// Is the operation with this number complete?
  bool complete(std::uint64_t number) {
    flush();
    const auto in_flight = events_.find(number);
    const bool done = in_flight == events_.end() || in_flight->second->reached();
    watchdog_->check();  // an aborted operation reaches its event, too
    if (done) events_.erase(events_.begin(), events_.upper_bound(number));
    return done;
  }

  /// Orders the work that is queued for the device from now on behind the operation.
  void hold(std::uint64_t number) {
    flush();
    watchdog_->check();
    const auto in_flight = events_.find(number);
    if (in_flight == events_.end() || in_flight->second->reached()) return;
    const Device::Stall stall(device_);
    in_flight->second->hold(psring::cuda::queue_of(device_).stream);
  }

 private:
  Work barrier_after_all(const Request& request) {
    flush();
    if (newest_) newest_->wait();
    watchdog_->check();
    return host_->start(request);
  }

  /// Runs a collective behind all work that the device's queue holds now, on a queue of this group's own.
  Work queue(const Request& request) {
    flush();
    begin(request.data);
    const auto piece = psring::cuda::pool_of(device_).shared_piece(request.data.data);
    if (piece && size() > 1) communicator_.register_memory(*piece);
    const Call& call = request.call;
    communicator_.call(to_string(call.collective),
                       [&](ncclComm_t comm) { queue_collective(request, rank(), comm, stream_); });
    count(request.control ? "start-up" : to_string(call.collective),
          predict(call.collective, call.count, call.type, request.parts != nullptr ? *request.parts : Parts(),
                  call.root));
    return work(end(call));
  }

  /// Queues the messages that were called so far, all together, because they may wait for each other. The memory of
  /// messages is not registered: a sender's piece may be large enough for that when the receiver's is not, and NCCL
  /// would wait for ever.
  void flush() {
    if (messages_.empty()) return;
    const std::vector<Request> messages = std::exchange(messages_, {});
    Call call{.collective = Collective::send};
    for (const Request& message : messages) {
      begin(message.data);
      call.type = message.data.type;
      call.count += message.data.count;
    }
    communicator_.call("send and recv", [&](ncclComm_t comm) {
      for (const Request& message : messages) queue_message(message, comm, stream_);
    });
    for (const Request& message : messages) count_message(message);
    end(call);
  }

  void begin(Vector data) {
    watchdog_->check();
    psring::check(data.processor == &device_, "a vector of another device");
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
  void count(std::string_view operation, const Moved& moved) {
    const std::size_t n = size();
    if (n == 1) return;
    add(ByteLedger::Direction::sent, std::string(operation), (rank() + 1) % n, moved.sent);
    add(ByteLedger::Direction::received, std::string(operation), (rank() + n - 1) % n, moved.received);
  }

  void count_message(const Request& message) {
    const bool sends = message.call.collective == Collective::send;
    add(sends ? ByteLedger::Direction::sent : ByteLedger::Direction::received, "message", message.peer,
        message.data.bytes());
  }

  void add(ByteLedger::Direction direction, const std::string& operation, std::size_t peer, std::uint64_t bytes) {
    (direction == ByteLedger::Direction::sent ? moved_.sent : moved_.received) += bytes;
    if (ledger_ != nullptr && bytes > 0)
      ledger_->add(direction, operation,
                   net::to_string({net::Role::worker, static_cast<std::uint32_t>(workers_[peer])}), bytes, 0);
  }

  /// Every rank broadcasts its own rank among all workers.
  static std::vector<std::int64_t> exchange_workers(ProcessGroup& host, std::size_t own) {
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
  Stream stream_{Stream::Urgency::high};  // its few blocks would find no room among the many blocks of a computation
  Communicator communicator_;
  std::vector<Request> messages_;  ///< called, but not queued yet
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::shared_ptr<Event>> events_;  ///< the ends of operations, by number; old ones are erased
  std::shared_ptr<Event> newest_;
  Moved moved_;
};

bool NcclOperation::advance() { return group_.complete(number_); }
void NcclOperation::wait() { group_.hold(number_); }
std::vector<std::size_t> NcclOperation::awaited() const {
  return {(group_.rank() + group_.size() - 1) % group_.size()};
}

}  // namespace

std::unique_ptr<ProcessGroup> make_group(std::unique_ptr<ProcessGroup> host, Device& device, NcclOptions options) {
  prepare_nccl(options);
  // Through sockets NCCL copies everything into its own buffers, and registered memory gains nothing.
  if (!options.share_gpu && host->size() > 1)
    psring::cuda::pool_of(device).share_through(nccl_memory(), options.register_from);
  ByteLedger* const ledger = options.group.ledger;
  auto watchdog = std::make_shared<Watchdog>(device, std::move(options.group));  // shared by a rank's groups
  const std::size_t worker = host->rank();
  return std::make_unique<NcclGroup>(std::move(host), device, std::move(watchdog), ledger, worker, options.share_gpu,
                                     options.patience);
}

}  // namespace psring::ring::cuda
