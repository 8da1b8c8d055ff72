#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <psring/common/base/parallel.h>
#include <psring/common/net/layout_message.h>
#include <psring/optim/optimizers.h>
#include <psring/optim/schedule.h>
#include <psring/tests/support/shard_cluster.h>

namespace psring::test {

using net::FrameHeader;
using net::FrameType;
using net::Role;

std::vector<float> Reply::values() const {
  std::vector<float> out(payload.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), payload.data(), out.size() * sizeof(float));
  return out;
}

std::string Reply::text() const { return {reinterpret_cast<const char*>(payload.data()), payload.size()}; }

std::unique_ptr<optim::Optimizer> make_rule(const std::string& name) {
  optim::OptimizerRegistry registry;
  optim::register_builtin_optimizers(registry);
  return registry.make(Spec::parse("--optimizer", name), {});
}

Layout small_layout(std::size_t owners) {
  std::vector<UnitSpec> units(2);
  units[0] = {"u",
              {{{"a", {100}, {Init::Kind::uniform, 0.5F}}, 0},
               {{"b", {3, 500}, {Init::Kind::normal, 1}}, 1},
               {{"c", {512}, {Init::Kind::constant, 0.25F}}, 2}}};
  units[1] = {"v", {{{"d", {700}, {Init::Kind::uniform, 0.1F}}, 3}}};
  return make_layout(std::move(units), owners);
}

Frame layout_frame(std::uint32_t worker, const Layout& layout, std::uint64_t seed, bool initial_by_worker) {
  Frame frame{{}, net::encode(net::LayoutMessage{layout, seed, initial_by_worker}), {}};
  frame.header.type = FrameType::layout;
  frame.header.sender_rank = worker;
  return frame;
}

namespace {

FrameHeader header_of(FrameType type, std::uint32_t worker, const Piece& piece) {
  FrameHeader header;
  header.type = type;
  header.sender_rank = worker;
  header.unit = static_cast<std::uint32_t>(piece.unit);
  header.set_range(piece.range);
  return header;
}

}  // namespace

Frame push_frame(std::uint32_t worker, const Piece& piece, std::uint64_t step, std::span<const float> unit_values,
                 FrameType type) {
  const auto bytes = std::as_bytes(unit_values.subspan(piece.range.begin, piece.range.size()));
  Frame frame{header_of(type, worker, piece), {bytes.begin(), bytes.end()}, {}};
  frame.header.step = step;
  return frame;
}

Frame pull_frame(std::uint32_t worker, const Piece& piece, std::uint64_t version) {
  Frame frame{header_of(FrameType::pull, worker, piece), {}, {}};
  frame.header.version = version;
  return frame;
}

/// The parts that all shards share, made as the programs make them.
struct ShardCluster::Rules {
  explicit Rules(const ShardRules& of)
      : rules(of),
        workers(of.workers),
        parallel(of.threads),
        optimizer(rules.optimizer.empty() ? nullptr : make_rule(rules.optimizer)),
        schedule(optim::make_schedule(Spec::parse("--schedule", "step:every=2,gamma=0.5"), 100)),
        row_rules(optim::TableRule{.rule = optim::make_row_rule(Spec::parse("--table-optimizer", of.table_optimizer)),
                                   .lr = of.lr,
                                   .rows = of.row_rules,
                                   .codec = optim::make_codec(of.table_compress, false)}) {
    Registry<server::Aggregator> registry;
    server::register_builtin_aggregators(registry);
    aggregator = registry.make(Spec::parse("--aggregate", rules.aggregate));
  }

  const ShardRules rules;
  const std::size_t workers;
  Parallel parallel;
  MemoryLedger memory;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::Schedule> schedule;
  optim::TableRules row_rules;
  std::unique_ptr<server::Aggregator> aggregator;
};

ShardCluster::ShardCluster(const ShardRules& rules, std::uint64_t order)
    : rules_(std::make_unique<Rules>(rules)), order_(order) {
  for (std::size_t rank = 0; rank < rules.servers; ++rank) shards_.push_back(make_shard(rank));
}

std::unique_ptr<server::Shard> ShardCluster::make_shard(std::size_t rank) const {
  const ShardRules& rules = rules_->rules;
  const server::ShardOptions options{.rank = static_cast<std::uint32_t>(rank),
                                     .servers = static_cast<std::uint32_t>(rules.servers),
                                     .workers = static_cast<std::uint32_t>(rules.workers),
                                     .lr = rules.lr,
                                     .clip_norm = rules.clip_norm,
                                     .loss_scaler = optim::LossScaler::parse(rules.loss_scale, false),
                                     .optimizer = rules_->optimizer.get(),
                                     .schedule = rules_->optimizer ? rules_->schedule.get() : nullptr,
                                     .aggregator = rules_->aggregator.get(),
                                     .row_rules = &rules_->row_rules,
                                     .consistency = parse_consistency(rules.consistency, rules.backups),
                                     .row_consistency = parse_consistency(rules.row_consistency),
                                     .remedy = parse_remedy(rules.remedy),
                                     .memory_bytes = rules.memory_bytes,
                                     .first_version = rules.first_version,
                                     .saved = rules.saved,
                                     .keeps_old_rows = rules.keeps_old_rows,
                                     .save_every = rules.save_every};
  return std::make_unique<server::Shard>(options, rules_->parallel, rules_->memory);
}

ShardCluster::~ShardCluster() = default;

std::size_t ShardCluster::communication_bytes() const { return rules_->memory.current_bytes(Category::communication); }

std::vector<Reply> ShardCluster::send_only(std::size_t server, const Frame& frame) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(frame.payload);
  std::vector<net::Outgoing> out;
  shards_.at(server)->on_message({frame.header, *bytes, frame.reply_space, bytes}, out);
  std::vector<Reply> replies;
  for (const net::Outgoing& o : out)
    replies.push_back({o.to, o.header, {o.payload.begin(), o.payload.end()}, o.payload.data()});
  for (Reply& reply : replies) {
    reply.header.sender_role = Role::server;
    reply.header.sender_rank = static_cast<std::uint32_t>(server);
  }
  return replies;
}

std::vector<Reply> ShardCluster::send(std::size_t server, const Frame& frame) {
  std::vector<Reply> to_workers;
  std::vector<Reply> between;
  const auto sort = [&](std::vector<Reply> replies) {
    for (Reply& reply : replies) (reply.to.role == Role::server ? between : to_workers).push_back(std::move(reply));
  };
  sort(send_only(server, frame));
  while (!between.empty()) {
    std::swap(between[order_() % between.size()], between.back());
    const Reply next = std::move(between.back());
    between.pop_back();
    sort(send_only(next.to.rank, {next.header, next.payload, {}}));
  }
  return to_workers;
}

void ShardCluster::open(const Layout& layout, std::uint64_t seed) {
  for (std::uint32_t worker = 0; worker < rules_->workers; ++worker)
    for (std::size_t server = 0; server < shards_.size(); ++server)
      for (const Reply& reply : send(server, layout_frame(worker, layout, seed)))
        if (reply.header.type != FrameType::layout_ok) throw std::logic_error(reply.text());
}

void ShardCluster::step(const Layout& layout, std::uint64_t step,
                        const std::vector<std::vector<std::vector<float>>>& gradients) {
  struct Push {
    std::uint32_t worker;
    Piece piece;
  };
  std::vector<Push> pushes;
  for (std::uint32_t worker = 0; worker < gradients.size(); ++worker)
    for (const Piece& piece : make_pieces(layout)) pushes.push_back({worker, piece});
  std::shuffle(pushes.begin(), pushes.end(), order_);
  for (const Push& push : pushes)
    for (const Reply& reply :
         send(push.piece.owner, push_frame(push.worker, push.piece, step, gradients[push.worker][push.piece.unit])))
      if (reply.header.type == FrameType::failed) throw std::logic_error(reply.text());
}

std::vector<float> ShardCluster::pull(const Layout& layout, std::size_t unit, std::uint64_t version) {
  std::vector<float> values(layout.units[unit].elements);
  for (const Piece& piece : make_pieces(layout)) {
    if (piece.unit != unit) continue;
    const std::vector<Reply> replies = send(piece.owner, pull_frame(0, piece, version));
    if (replies.size() != 1 || replies[0].header.type != FrameType::values) return {};
    std::ranges::copy(replies[0].values(), values.begin() + static_cast<std::ptrdiff_t>(piece.range.begin));
  }
  return values;
}

}  // namespace psring::test
