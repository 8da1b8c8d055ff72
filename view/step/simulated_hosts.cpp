#include <optional>
#include <utility>

#include <psring/ring/hier/group.h>
#include <psring/ring/link/group.h>
#include <psring/ring/request.h>
#include <psring/view/step/simulated_hosts.h>

namespace psring::view {
namespace {

using namespace psring::ring;

/// Numbers of the groups within hosts, which no group between hosts has.
constexpr std::uint32_t kWithin = std::uint32_t{1} << 20;

/// The ranks of one host, in a group of messages. As in shared memory, each rank takes its part from every other rank
/// at once.
class WithinHost final : public InnerGroup {
 public:
  explicit WithinHost(std::unique_ptr<InnerGroup> messages)
      : InnerGroup(messages->rank(), messages->size()), messages_(std::move(messages)) {}

  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override {
    return std::make_unique<WithinHost>(messages_->part(ranks, kWithin + id, std::move(names)));
  }
  Work start(const Request& request) override { return messages_->start(request); }
  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    return messages_->describe(collective, count, type);
  }
  std::string way(Collective collective, std::size_t count, ElementType type) const override {
    return messages_->way(collective, count, type);
  }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    return messages_->predict(collective, count, type, parts, root);
  }
  bool sums_in_rank_order(Collective reduction, ElementType type) const override {
    return messages_->sums_in_rank_order(reduction, type);
  }
  Moved moved() const override { return messages_->moved(); }
  /// The links between hosts are advanced, too, and take the messages of all groups: a second look would take time.
  void advance() override {}
  void rest(std::uint32_t seen, Moment until) override { messages_->rest(seen, until); }
  void probe() override { messages_->probe(); }
  void break_off(const Error& error) noexcept override { messages_->break_off(error); }
  std::optional<Error> broken() const override { return messages_->broken(); }

 private:
  const std::unique_ptr<InnerGroup> messages_;
};

}  // namespace

SimulatedGroup make_simulated_hosts(net::Transport& transport, std::size_t rank,
                                    const std::vector<std::size_t>& host_of, const LinkOptions& options) {
  auto links = make_link_group(transport, rank, host_of.size(), options);
  std::vector<std::size_t> near;
  for (std::size_t other = 0; other < host_of.size(); ++other)
    if (host_of[other] == host_of[rank]) near.push_back(other);
  auto host = std::make_unique<WithinHost>(make_direct_part(*links, near, kWithin));
  SimulatedGroup made{nullptr, links.get()};
  made.group = make_hierarchical_group(std::move(host), std::move(links), rank, host_of, options.group, options.clock);
  return made;
}

}  // namespace psring::view
