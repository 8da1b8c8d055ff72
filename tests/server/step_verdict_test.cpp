// StepVerdict alone: from the shards' sums to one decision for all of them.
#include <limits>

#include <catch2/catch.hpp>

#include <psring/server/step_verdict.h>
#include <psring/tests/support/shard_cluster.h>

using namespace psring;
using optim::ExactSum;
using server::ShardOptions;
using server::StepVerdict;
using Action = StepVerdict::Action;

namespace {

ExactSum sum_of(double value) {
  ExactSum sum;
  sum.add(value);
  return sum;
}

net::Message message_of(const net::Outgoing& frame, std::uint32_t sender) {
  net::Message message{frame.header, frame.payload, {}, frame.holder};
  message.header.sender_role = net::Role::server;
  message.header.sender_rank = sender;
  return message;
}

}  // namespace

TEST_CASE("one shard decides at once: clipped, or as it is") {
  ShardOptions options{.clip_norm = 1};
  StepVerdict verdict(options);
  std::vector<net::Outgoing> out;
  CHECK(verdict.on_square_sum(sum_of(16), out).action == Action::apply);
  CHECK(verdict.gradient_scale() == Approx(0.25F));
  CHECK(verdict.on_square_sum(sum_of(0.25), out).action == Action::apply);
  CHECK(verdict.gradient_scale() == 1);
  CHECK(out.empty());
}

TEST_CASE("all shards come to the same decision from the sum over all of them") {
  ShardOptions first{.rank = 0, .servers = 2, .clip_norm = 1};
  ShardOptions second{.rank = 1, .servers = 2, .clip_norm = 1};
  StepVerdict zero(first);
  StepVerdict one(second);
  std::vector<net::Outgoing> out;
  CHECK(one.on_square_sum(sum_of(9), out).action == Action::wait);
  REQUIRE(out.size() == 1);
  std::vector<net::Outgoing> back;
  CHECK(zero.on_message(message_of(out[0], 1), back).action == Action::wait);
  CHECK(zero.on_square_sum(sum_of(7), back).action == Action::apply);
  REQUIRE(back.size() == 1);
  CHECK(one.on_message(message_of(back[0], 0), out).action == Action::apply);
  CHECK(zero.gradient_scale() == one.gradient_scale());
  CHECK(zero.gradient_scale() == Approx(0.25F));
}

TEST_CASE("a step whose gradients are not finite is skipped, and halves the loss scale") {
  ShardOptions options{.loss_scaler = optim::LossScaler::dynamic()};
  StepVerdict verdict(options);
  std::vector<net::Outgoing> out;
  const float scale = verdict.scaler().scale();
  CHECK(verdict.on_square_sum(sum_of(std::numeric_limits<double>::infinity()), out).action == Action::skip);
  CHECK(verdict.skipped());
  CHECK(verdict.scaler().scale() == scale / 2);
  CHECK(verdict.scaler().skipped() == 1);
  CHECK(verdict.on_square_sum(sum_of(1), out).action == Action::apply);
  CHECK_FALSE(verdict.skipped());
  CHECK(verdict.gradient_scale() == 2 / scale);
}

TEST_CASE("a layerwise rule takes a second round, whose total scales the layers") {
  ShardOptions options{.clip_norm = 1};
  StepVerdict verdict(options);
  std::vector<net::Outgoing> out;
  CHECK(verdict.on_square_sum(sum_of(4), out).action == Action::apply);
  const auto decision = verdict.on_layer_sums({sum_of(1), sum_of(2)}, out);
  CHECK(decision.action == Action::scale_layers);
  REQUIRE(decision.total.size() == 2);
  CHECK(decision.total[1].value() == 2);
}

TEST_CASE("a follower continues with the state of its server") {
  ShardOptions options{.servers = 1, .clip_norm = 1, .loss_scaler = optim::LossScaler::dynamic()};
  StepVerdict leader(options);
  StepVerdict follower(options);
  std::vector<net::Outgoing> out;
  leader.on_square_sum(sum_of(std::numeric_limits<double>::infinity()), out);
  follower.restore(leader.store(), leader.skipped());
  CHECK(follower.skipped());
  CHECK(follower.store() == leader.store());
  leader.on_square_sum(sum_of(5), out);
  follower.on_square_sum(sum_of(5), out);
  CHECK(follower.gradient_scale() == leader.gradient_scale());
  CHECK(follower.store() == leader.store());
}
