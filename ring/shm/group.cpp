#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <psring/ring/shm/endpoint.h>
#include <psring/ring/shm/group.h>
#include <psring/ring/shm/predict.h>
#include <psring/ring/shm/progress.h>

namespace psring::ring {
namespace {

class ShmGroup final : public InnerGroup {
 public:
  ShmGroup(const ShmWorld& world, const std::vector<std::size_t>& members, std::vector<std::size_t> names,
           std::size_t id, const GroupOptions& options)
      : ShmGroup(std::make_unique<ShmEndpoint>(world, members, std::move(names), id), options) {}

  Arena* arena() override { return &at_->arena(); }
  std::byte* reach(std::size_t rank, std::uint64_t mark) override {
    if (rank >= size()) fail(ErrorKind::usage, "rank {} of a group of {}", rank, size());
    check(mark > 0 && mark <= at_->capacity(rank), "rank {} has no memory at {}", rank, mark);
    return at_->base(rank) + (mark - 1);
  }

  Work start(const Request& request) override {
    const bool message = request.call.collective >= Collective::send;
    return message ? progress_.start_message(request) : progress_.start_collective(request);
  }
  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override {
    const std::size_t most = ShmControl::groups(at_->world().mappings.size());
    if (id >= most)
      fail(ErrorKind::usage, "a job of {} workers on this host makes at most {} groups", at_->world().mappings.size(),
           most);
    std::vector<std::size_t> members;
    for (const std::size_t r : ranks) members.push_back(at_->members()[r]);
    return std::make_unique<ShmGroup>(at_->world(), members, std::move(names), id, options_);
  }

  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    const char* way = count * type.bytes() <= kShmCopiedBytes ? "eager" : "direct";
    return fmt::format("{}: {}, shared memory", to_string(collective), way);
  }
  std::string way(Collective, std::size_t, ElementType) const override { return "shared memory"; }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    return predict_shm(rank(), size(), collective, count, type, parts, root);
  }
  bool sums_in_rank_order(Collective /*reduction*/, ElementType /*type*/) const override { return true; }
  Moved moved() const override { return at_->traffic().moved(); }
  void account() override {
    if (options_.ledger != nullptr) at_->traffic().account(*options_.ledger, at_->world(), at_->members());
  }

  void advance() override {
    at_->failure().check();
    progress_.advance();
  }
  std::uint32_t watch() override { return at_->bells().watch(); }
  void rest(std::uint32_t seen, Moment until) override { at_->bells().rest(seen, until); }
  void leave() override { at_->bells().leave(); }
  void break_off(const Error& error) noexcept override { at_->failure().break_off(error); }
  std::optional<Error> broken() const override { return at_->failure().error(); }

 private:
  ShmGroup(std::unique_ptr<ShmEndpoint> at, const GroupOptions& options)
      : InnerGroup(at->rank(), at->size()), at_(std::move(at)), options_(options), progress_(*at_, options) {}

  const std::unique_ptr<ShmEndpoint> at_;
  const GroupOptions options_;
  ShmProgress progress_;
};

}  // namespace

std::unique_ptr<InnerGroup> make_shm_group(const ShmWorld& world, GroupOptions options) {
  std::vector<std::size_t> members(world.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  return std::make_unique<ShmGroup>(world, members, std::vector<std::size_t>(), 0, options);
}

}  // namespace psring::ring
