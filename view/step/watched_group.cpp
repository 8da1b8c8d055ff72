#include <map>
#include <string>
#include <utility>

#include <psring/ring/request.h>
#include <psring/view/step/watched_group.h>

namespace psring::view {
namespace {

using ring::Collective;

/// Tells the listener when the operation is complete.
class WatchedOperation final : public ring::Operation {
 public:
  WatchedOperation(ring::Work work, std::size_t place, WatchedCall call, CallListener& listener)
      : work_(std::move(work)), place_(place), call_(std::move(call)), listener_(listener) {}

  bool advance() override {
    const bool done = work_.done();
    if (done) tell();
    return done;
  }
  void wait() override {
    work_.wait();
    tell();
  }
  std::vector<std::size_t> awaited() const override { return work_.awaited(); }

 private:
  void tell() {
    if (!std::exchange(told_, true)) listener_.ends(place_, call_);
  }

  ring::Work work_;
  const std::size_t place_;
  const WatchedCall call_;
  CallListener& listener_;
  bool told_ = false;
};

class WatchedGroup final : public ring::InnerGroup {
 public:
  WatchedGroup(std::unique_ptr<ring::InnerGroup> inner, std::uint32_t id, std::vector<std::size_t> members,
               ring::LinkOptions options, CallListener& listener)
      : InnerGroup(inner->rank(), inner->size()),
        inner_(std::move(inner)),
        id_(id),
        members_(std::move(members)),
        options_(std::move(options)),
        listener_(listener) {}

  ring::Work start(const ring::Request& request) override {
    const std::size_t place = members_[rank()];
    WatchedCall call{id_, number(request), rank(), members_, request.call, request.data};
    listener_.starts(place, call, request, options_);
    return ring::Work(
        std::make_shared<WatchedOperation>(inner_->start(request), place, std::move(call), listener_));  // as Work asks
  }
  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override {
    std::vector<std::size_t> members;
    for (const std::size_t each : ranks) members.push_back(members_[each]);
    return std::make_unique<WatchedGroup>(inner_->part(ranks, id, std::move(names)), id, std::move(members), options_,
                                          listener_);
  }

  std::string describe(Collective collective, std::size_t count, ring::ElementType type) const override {
    return inner_->describe(collective, count, type);
  }
  std::string way(Collective collective, std::size_t count, ring::ElementType type) const override {
    return inner_->way(collective, count, type);
  }
  ring::Cost predict(Collective collective, std::size_t count, ring::ElementType type, const ring::Parts& parts,
                     std::size_t root) const override {
    return inner_->predict(collective, count, type, parts, root);
  }
  bool sums_in_rank_order(Collective reduction, ring::ElementType type) const override {
    return inner_->sums_in_rank_order(reduction, type);
  }
  ring::Moved moved() const override { return inner_->moved(); }
  void account() override { inner_->account(); }
  Arena* arena() override { return inner_->arena(); }
  std::byte* reach(std::size_t of, std::uint64_t mark) override { return inner_->reach(of, mark); }

  void advance() override { inner_->advance(); }
  std::uint32_t watch() override { return inner_->watch(); }
  void rest(std::uint32_t seen, Moment until) override { inner_->rest(seen, until); }
  void leave() override { inner_->leave(); }
  void probe() override { inner_->probe(); }
  void break_off(const Error& error) noexcept override { inner_->break_off(error); }
  std::optional<Error> broken() const override { return inner_->broken(); }

 private:
  /// As the group below numbers its operations, and the frames of these.
  std::uint64_t number(const ring::Request& request) {
    if (request.call.collective == Collective::send) return sent_[request.peer]++;
    if (request.call.collective == Collective::recv) return received_[request.peer]++;
    return collectives_++;
  }

  const std::unique_ptr<ring::InnerGroup> inner_;
  const std::uint32_t id_;
  const std::vector<std::size_t> members_;
  const ring::LinkOptions options_;
  CallListener& listener_;
  std::uint64_t collectives_ = 0;
  std::map<std::size_t, std::uint64_t> sent_;      ///< messages by the other rank
  std::map<std::size_t, std::uint64_t> received_;  ///< the same
};

}  // namespace

std::unique_ptr<ring::InnerGroup> make_watched_group(std::unique_ptr<ring::InnerGroup> group,
                                                     std::vector<std::size_t> members, ring::LinkOptions options,
                                                     CallListener& listener) {
  return std::make_unique<WatchedGroup>(std::move(group), 0, std::move(members), std::move(options), listener);
}

}  // namespace psring::view
