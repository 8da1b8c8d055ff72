#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/ring/link/endpoint.h>
#include <psring/ring/link/group.h>
#include <psring/ring/link/plans.h>

namespace psring::ring {
namespace {

class LinkGroup final : public InnerGroup {
 public:
  /// `options`: of the plans; none: the engine's.
  LinkGroup(std::shared_ptr<LinkEngine> engine, std::uint32_t id, std::vector<std::uint32_t> members,
            std::vector<std::size_t> names, std::size_t rank, std::optional<LinkOptions> options = {})
      : InnerGroup(rank, members.size()),
        at_(std::move(engine), id, std::move(members), std::move(names), rank),
        options_(std::move(options)),
        plans_(options_ ? *options_ : at_.engine().options(), rank, size()) {}

  Work start(const Request& request) override { return at_.start(request, plans_.plan(request)); }
  std::unique_ptr<InnerGroup> part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                   std::vector<std::size_t> names) override {
    return make_part(ranks, id, std::move(names), options_);
  }
  std::unique_ptr<InnerGroup> direct_part(const std::vector<std::size_t>& ranks, std::uint32_t id) {
    LinkOptions options = engine().options();
    options.algorithm = Algorithm::exchange;
    return make_part(ranks, id, {}, std::move(options));
  }

  std::string describe(Collective collective, std::size_t count, ElementType type) const override {
    return fmt::format("{}: {}, {}", to_string(collective), plans_.name(collective, count * type.bytes()), transport());
  }
  std::string way(Collective collective, std::size_t count, ElementType type) const override {
    return fmt::format("{} over {}", plans_.name(collective, count * type.bytes()), transport());
  }
  Cost predict(Collective collective, std::size_t count, ElementType type, const Parts& parts,
               std::size_t root) const override {
    Request request{.call = {.collective = collective, .type = type, .count = count}, .parts = &parts};
    request.call.root = static_cast<std::uint32_t>(root);
    return plans_.predict(request);
  }
  bool sums_in_rank_order(Collective reduction, ElementType type) const override {
    return plans_.sums_in_rank_order(reduction, type);
  }
  Moved moved() const override { return at_.moved(); }

  void advance() override {
    engine().locked([&] { engine().take_all(); });
  }
  void rest(std::uint32_t /*seen*/, Moment until) override {
    engine().locked([&] { engine().take_next(until); });
  }
  void wake() override { engine().transport().wake(); }
  void probe() override {
    engine().locked([&] { at_.probe_oldest(); });
  }
  void break_off(const Error& error) noexcept override {
    engine().locked([&] { engine().failure().break_off(error); });
  }
  std::optional<Error> broken() const override {
    return engine().locked([&] { return std::optional<Error>(engine().failure().told()); });
  }

 private:
  LinkEngine& engine() const { return at_.engine(); }
  std::unique_ptr<InnerGroup> make_part(const std::vector<std::size_t>& ranks, std::uint32_t id,
                                        std::vector<std::size_t> names, std::optional<LinkOptions> options) {
    std::vector<std::uint32_t> members;
    for (const std::size_t r : ranks) members.push_back(at_.members()[r]);
    const auto own = std::find(ranks.begin(), ranks.end(), rank());
    return std::make_unique<LinkGroup>(at_.shared_engine(), id, std::move(members), std::move(names),
                                       static_cast<std::size_t>(own - ranks.begin()), std::move(options));
  }
  /// The transport as people read it: "tcp 10.0.0.2:7001".
  std::string transport() const {
    return size() < 2 ? "one rank" : engine().transport().describe(at_.peer(rank() == 0 ? 1 : 0));
  }

  LinkEndpoint at_;
  const std::optional<LinkOptions> options_;
  const LinkPlans plans_;
};

}  // namespace

std::unique_ptr<InnerGroup> make_link_group(net::Transport& transport, std::size_t rank, std::size_t ranks,
                                            LinkOptions options) {
  std::vector<std::uint32_t> members(ranks);
  for (std::size_t r = 0; r < ranks; ++r) members[r] = static_cast<std::uint32_t>(r);
  return std::make_unique<LinkGroup>(std::make_shared<LinkEngine>(transport, rank, ranks, std::move(options)), 0,
                                     std::move(members), std::vector<std::size_t>(), rank);
}

std::unique_ptr<InnerGroup> make_direct_part(InnerGroup& links, const std::vector<std::size_t>& ranks,
                                             std::uint32_t id) {
  auto* const group = dynamic_cast<LinkGroup*>(&links);
  check(group != nullptr, "only a group of links has a direct part");
  return group->direct_part(ranks, id);
}

}  // namespace psring::ring
