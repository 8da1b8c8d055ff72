#include <utility>

#include <fmt/format.h>

#include <psring/ring/traced_group.h>

namespace psring::ring {
namespace {

class TracedOperation final : public Operation {
 public:
  TracedOperation(Work work, Trace::Flight flight) : work_(std::move(work)), flight_(std::move(flight)) {}

  bool advance() override {
    const bool done = work_.done();
    if (done) flight_.land();
    return done;
  }
  void wait() override {
    work_.wait();
    if (work_.done()) flight_.land();  // a device may still wait for it
  }
  std::size_t awaited() const override { return work_.awaited(); }

 private:
  Work work_;
  Trace::Flight flight_;
};

class TracedGroup final : public ProcessGroup {
 public:
  TracedGroup(std::unique_ptr<ProcessGroup> group, Trace& trace) : group_(std::move(group)), trace_(trace) {}

  std::size_t rank() const override { return group_->rank(); }
  std::size_t size() const override { return group_->size(); }
  Arena* arena() override { return group_->arena(); }
  std::byte* reach(std::size_t rank, std::uint64_t mark) override { return group_->reach(rank, mark); }

  Work all_reduce(Vector data, const ReduceOp& op) override {
    return traced(Collective::all_reduce, data.bytes(), [&] { return group_->all_reduce(data, op); });
  }
  Work reduce_scatter(Vector data, const Parts& parts, const ReduceOp& op) override {
    return traced(Collective::reduce_scatter, data.bytes(), [&] { return group_->reduce_scatter(data, parts, op); });
  }
  Work all_gather(Vector data, const Parts& parts) override {
    return traced(Collective::all_gather, data.bytes(), [&] { return group_->all_gather(data, parts); });
  }
  Work broadcast(Vector data, std::size_t root) override {
    return traced(Collective::broadcast, data.bytes(), [&] { return group_->broadcast(data, root); });
  }
  Work barrier() override {
    return traced(Collective::barrier, 0, [&] { return group_->barrier(); });
  }
  Work send(ConstVector data, std::size_t to) override {
    return traced(Collective::send, data.count * data.type.bytes(), [&] { return group_->send(data, to); });
  }
  Work recv(Vector data, std::size_t from) override {
    return traced(Collective::recv, data.bytes(), [&] { return group_->recv(data, from); });
  }

  std::unique_ptr<ProcessGroup> split(std::uint32_t colour, std::uint32_t key) override {
    return make_traced_group(group_->split(colour, key), trace_);
  }
  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    return group_->describe(collective, count, type);
  }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    return group_->predict(collective, count, type, parts, root);
  }
  bool sums_in_rank_order(Collective reduction, ElementType type) const override {
    return group_->sums_in_rank_order(reduction, type);
  }
  Moved moved() const override { return group_->moved(); }
  void account() override { group_->account(); }

 private:
  template <class Begin>
  Work traced(Collective collective, std::size_t bytes, Begin begin) {
    Trace::Flight flight(trace_, fmt::format("{} {} bytes", to_string(collective), bytes));
    Work work = begin();
    return Work(std::make_shared<TracedOperation>(std::move(work), std::move(flight)));
  }

  const std::unique_ptr<ProcessGroup> group_;
  Trace& trace_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_traced_group(std::unique_ptr<ProcessGroup> group, Trace& trace) {
  return std::make_unique<TracedGroup>(std::move(group), trace);
}

}  // namespace psring::ring
