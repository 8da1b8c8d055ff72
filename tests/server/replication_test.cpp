// A server is lost between any two frames of its job, its follower takes its place, and the job ends with the same
// bits.
#include <cstring>
#include <limits>
#include <ostream>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/cut_job.h>
#include <psring/tests/support/values.h>

using namespace psring;
using net::Peer;
using net::Role;
using test::CutJob;
using test::CutRules;

namespace {

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

struct Case {
  const char* what;
  CutRules rules;
};

std::vector<Case> cases() {
  const auto make = [](const char* optimizer, std::size_t workers, double clip_norm, std::size_t micros) {
    CutRules rules;
    rules.shards = {.servers = 2, .workers = workers, .optimizer = optimizer, .clip_norm = clip_norm};
    rules.micros = micros;
    rules.push_pull = micros == 1;
    rules.replicas = true;
    return rules;
  };
  std::vector<Case> all{{"momentum", make("momentum", 3, 0, 1)},
                        {"adam, clipped", make("adam", 2, 0.5, 1)},
                        {"adam, two micro-batches, clipped", make("adam", 2, 0.5, 2)},
                        {"adam, a loss scale that moves", make("adam", 2, 0, 1)}};
  all.back().rules.shards.loss_scale = "dynamic";
  for (const char* rule : {"adagrad", "adam"}) {
    all.push_back({"a table", make("sgd", 2, 0, 1)});
    all.back().rules.tables = all.back().rules.shards.keeps_old_rows = true;
    all.back().rules.shards.table_optimizer = rule;
    all.push_back(all.back());
    all.back().what = "a table whose rows are pulled ahead";
    all.back().rules.lookahead = true;
  }
  return all;
}

struct Ending {
  std::vector<float> parameters;
  std::size_t frames = 0;
};

Ending without_cut(const CutRules& rules) {
  CutJob job(rules);
  const std::size_t frames = job.run(kAll);
  return {job.parameters(), frames};
}

/// The records of a shard's rows.
std::vector<std::byte> rows_of(const server::Shard& shard) {
  std::vector<std::byte> bytes;
  for (const optim::TablePart& table : shard.tables().state())
    for (const std::uint32_t row : table.rows->in_order()) {
      const std::byte* const record = table.rows->records().record(row);
      bytes.insert(bytes.end(), record, record + table.rows->record_bytes());
    }
  return bytes;
}

/// Compares values and optimizer state of two shards.
bool same_state(server::Shard& a, server::Shard& b) {
  const auto of_a = a.state();
  const auto of_b = b.state();
  if (of_a.size() != of_b.size() || a.version() != b.version()) return false;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const auto x = of_a[i].values.bytes();
    const auto y = of_b[i].values.bytes();
    if (of_a[i].array != of_b[i].array || x.size() != y.size() || std::memcmp(x.data(), y.data(), x.size()) != 0)
      return false;
  }
  return rows_of(a) == rows_of(b);
}

void check_ends_as(CutJob& job, const CutRules& rules, const Ending& expected) {
  job.run(kAll);
  REQUIRE(job.done());
  CHECK((job.parameters() == expected.parameters));
  CHECK_FALSE(job.knows_the_dead());
  for (std::size_t rank = 0; rank < rules.shards.servers; ++rank) {
    CHECK(job.shard(rank).version() == rules.steps);
    CHECK(same_state(job.shard(rank), job.follower(rank)));
  }
}

/// The server, if its follower can take its place; otherwise the follower.
Peer possible(const CutJob& job, const CutRules& rules, std::size_t server) {
  const auto servers = static_cast<std::uint32_t>(rules.shards.servers);
  const auto rank = static_cast<std::uint32_t>(server) % servers;
  return {Role::server, server < servers && job.can_lose(rank) ? rank : rank + servers};
}

}  // namespace

TEST_CASE("followers change no bit, and have what their servers have") {
  for (const Case& c : cases()) {
    CAPTURE(c.what);
    CutRules alone = c.rules;
    alone.replicas = false;
    const Ending expected = without_cut(alone);
    CutJob job(c.rules);
    check_ends_as(job, c.rules, expected);
  }
}

TEST_CASE("a server or a follower lost after any frame: the same bits") {
  for (const Case& c : cases()) {
    const Ending expected = without_cut(c.rules);
    std::size_t promoted = 0;
    for (std::size_t lost = 0; lost < 2 * c.rules.shards.servers; ++lost) {
      for (std::size_t k = 0; k <= expected.frames; ++k) {
        CAPTURE(c.what, lost, k);
        CutJob job(c.rules);
        job.run(k);
        const Peer peer = possible(job, c.rules, lost);
        if (peer.rank < c.rules.shards.servers) ++promoted;
        job.cut(peer);
        CHECK_FALSE(job.knows_the_dead());
        check_ends_as(job, c.rules, expected);
      }
    }
    CHECK(promoted > expected.frames);  // out of twice as many frames
  }
}

TEST_CASE("workers lost, servers lost, followers lost, followers of followers lost") {
  for (const Case& c : cases()) {
    const Ending expected = without_cut(c.rules);
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(c.what, seed);
      CutRules rules = c.rules;
      rules.seed = seed;
      CutJob job(rules);
      std::mt19937_64 random(seed);
      for (int cuts = 0; cuts < 6; ++cuts) {
        job.run(random() % expected.frames);
        if (const std::size_t lost = random() % 5; lost < 4)
          job.cut(possible(job, rules, lost));
        else
          job.cut();
      }
      check_ends_as(job, rules, expected);
    }
  }
}

TEST_CASE("a follower that counts as having what it was only sent would be found out") {
  for (const Case& c : cases()) {
    const Ending expected = without_cut(c.rules);
    CutRules rules = c.rules;
    rules.eager = true;
    std::size_t wrong = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      rules.seed = seed;
      for (std::size_t k = 0; k <= expected.frames; k += 3) {
        CutJob job(rules);
        job.run(k);
        if (!job.can_lose(0)) continue;
        job.cut(Peer{Role::server, 0});
        try {
          job.run(kAll);
          if (!job.done() || job.parameters() != expected.parameters) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
      }
    }
    CAPTURE(c.what);
    CHECK(wrong > 0);
  }
}

TEST_CASE("a server waits for its follower before it answers, and for nothing else") {
  CutRules rules = cases()[0].rules;
  rules.shards.servers = 1;
  rules.shards.workers = 1;
  const test::ShardCluster cluster(rules.shards);
  const auto shard = cluster.make_shard(0);
  const Peer follower{Role::server, 1};
  server::Replication replication(*shard, follower);
  std::vector<net::Outgoing> out;
  const auto acknowledge = [&](std::uint64_t frames) {
    net::Message message{};
    message.header.type = net::FrameType::replicated;
    message.header.sender_role = Role::server;
    message.header.sender_rank = 1;
    message.header.version = frames;
    out.clear();
    replication.on_message(std::move(message), out);
  };
  const Layout layout = test::small_layout(1);
  const auto say = [&](const test::Frame& frame) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(frame.payload);
    out.clear();
    replication.on_message({frame.header, *bytes, {}, bytes}, out);
    return std::weak_ptr<const void>(bytes);
  };
  say(test::layout_frame(0, layout));
  CHECK(out.empty());  // the follower is not there yet
  acknowledge(0);
  REQUIRE(out.size() == 1);  // an empty snapshot: only its end
  CHECK(out[0].to == follower);
  CHECK(out[0].header.relayed == net::FrameType{});
  say(test::layout_frame(0, layout));
  CHECK(out.empty());  // the snapshot is not acknowledged yet
  test::error_of(ErrorKind::protocol, [&] { acknowledge(0); });
  acknowledge(1);
  REQUIRE(out.size() == 2);  // two layouts
  CHECK(out[0].to == follower);
  CHECK(out[0].header.type == net::FrameType::state);
  CHECK(out[0].header.relayed == net::FrameType::layout);
  const Piece piece = make_pieces(layout)[0];
  say(test::pull_frame(0, piece, 0));
  CHECK(out.empty());  // waits behind the answer to the layout
  acknowledge(3);
  REQUIRE(out.size() == 3);
  CHECK(out[0].header.type == net::FrameType::layout_ok);
  CHECK(out[1].header.type == net::FrameType::layout_ok);
  CHECK(out[2].header.type == net::FrameType::values);
  say(test::pull_frame(0, piece, 0));
  REQUIRE(out.size() == 1);  // nothing was passed on: answered at once
  const std::vector<float> gradient = test::normal_values(layout.units[0].elements, 1);
  const std::weak_ptr<const void> pushed = say(test::push_frame(0, piece, 0, gradient, net::FrameType::push_pull));
  REQUIRE(out.size() == 1);
  CHECK(out[0].header.type == net::FrameType::replicate);
  CHECK(out[0].header.relayed == net::FrameType::push_pull);
  CHECK(out[0].header.group == 0);
  out.clear();
  CHECK_FALSE(pushed.expired());  // the shard no longer needs it, the link to the follower does
  test::error_of(ErrorKind::protocol, [&] { acknowledge(3); });
  test::error_of(ErrorKind::protocol, [&] { acknowledge(5); });
  acknowledge(4);
  REQUIRE(out.size() == 1);
  CHECK(out[0].header.type == net::FrameType::values);
  CHECK(out[0].header.version == 1);
  CHECK(pushed.expired());
}

TEST_CASE("a follower takes what its server passes on, and nothing else") {
  CutRules rules = cases()[0].rules;
  rules.shards.servers = 1;
  const test::ShardCluster cluster(rules.shards);
  const auto shard = cluster.make_shard(0);
  server::Follower follower(*shard, {Role::server, 0});
  const auto refused = [&](auto&& spoil) {
    net::Message message{};
    message.header.type = net::FrameType::state;
    message.header.relayed = net::FrameType::leave;
    message.header.sender_role = Role::server;
    spoil(message);
    std::vector<net::Outgoing> out;
    test::error_of(ErrorKind::protocol, [&] { follower.on_message(std::move(message), out); });
    CHECK(out.empty());
  };
  refused([](net::Message& m) { m.header.sender_rank = 1; });
  refused([](net::Message& m) { m.header.sender_role = Role::worker; });
  refused([](net::Message& m) { m.header.type = net::FrameType::push; });
  refused([](net::Message& m) { m.header.type = net::FrameType::replicate; });  // no gradient
  refused([](net::Message& m) { m.header.relayed = net::FrameType::push; });
  refused([](net::Message& m) { m.header.relayed = net::FrameType::pull; });
  refused([](net::Message& m) { m.header.relayed = {}; });                      // a part before any layout
  refused([](net::Message& m) { m.header.relayed = {}, m.header.micro = 3; });  // an end without anything
  CHECK_FALSE(follower.whole());
}

TEST_CASE("what a follower has acknowledged may be overwritten") {
  CutRules rules = cases()[0].rules;
  rules.shards.servers = 1;
  rules.shards.workers = 2;
  const test::ShardCluster cluster(rules.shards);
  const auto followed = cluster.make_shard(0);
  const auto other = cluster.make_shard(0);
  server::Replication replication(*followed, {Role::server, 1});
  server::Follower follower(*other, {Role::server, 0});
  std::vector<net::Outgoing> out;
  net::Message here{};
  here.header.type = net::FrameType::replicated;
  here.header.sender_role = Role::server;
  here.header.sender_rank = 1;
  replication.on_message(here, out);
  // The link's own memory, which the next frame overwrites.
  std::vector<std::byte> link;
  const auto hand_over = [&] {
    for (bool more = true; more;) {
      more = false;
      for (const net::Outgoing& frame : std::exchange(out, {})) {
        if (frame.to != Peer{Role::server, 1}) continue;
        link.assign(frame.payload.begin(), frame.payload.end());
        net::Message message{frame.header, link, {}, nullptr};
        message.header.sender_role = Role::server;
        message.header.sender_rank = 0;
        std::vector<net::Outgoing> answers;
        follower.on_message(message, answers);
        REQUIRE(answers.size() == 1);
        std::ranges::fill(link, std::byte{0x55});
        net::Message taken{answers[0].header, {}, {}, nullptr};
        taken.header.sender_role = Role::server;
        taken.header.sender_rank = 1;
        replication.on_message(taken, out);
        more = true;
      }
    }
  };
  const Layout layout = test::small_layout(1);
  const auto say = [&](const test::Frame& frame) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(frame.payload);
    replication.on_message({frame.header, *bytes, {}, bytes}, out);
    hand_over();
  };
  hand_over();
  CHECK(follower.whole());
  for (std::uint32_t worker : {0, 1}) say(test::layout_frame(worker, layout));
  for (const Piece& piece : make_pieces(layout))
    for (std::uint32_t worker : {0, 1})
      say(test::push_frame(worker, piece, 0, test::normal_values(layout.units[piece.unit].elements, 7 + worker),
                           net::FrameType::push_pull));
  CHECK(followed->version() == 1);
  CHECK(same_state(*followed, *other));
}

TEST_CASE("a snapshot has all that a shard goes on from, also in 16 bit") {
  const auto type = GENERATE(values({DType::f32, DType::bf16}));
  CutRules rules = cases()[1].rules;
  rules.shards.servers = 1;
  rules.shards.workers = 1;
  rules.shards.loss_scale = "dynamic";
  test::ShardCluster cluster(rules.shards);
  Layout layout = test::small_layout(1);
  layout.parameter_type = type;
  layout.units[1].trained = false;
  const Piece piece = make_pieces(layout)[0];
  const auto push = [&](server::Shard& shard, std::uint64_t step) {
    std::vector<float> gradient = test::normal_values(layout.units[0].elements, step);
    if (step % 2 == 1) gradient[3] = std::numeric_limits<float>::infinity();  // this step is skipped
    const test::Frame frame = test::push_frame(0, piece, step, gradient, net::FrameType::push_pull);
    std::vector<net::Outgoing> out;
    shard.on_message({frame.header, frame.payload, {}, nullptr}, out);
    REQUIRE(out.size() == 1);
    return out[0];
  };
  server::Shard& shard = cluster.shard(0);
  cluster.open(layout);
  for (std::uint64_t step = 0; step < 4; ++step) push(shard, step);
  shard.begin_epoch(1);
  std::vector<net::Outgoing> frames;
  shard.snapshot({Role::server, 1}, frames);
  const auto copy = cluster.make_shard(0);
  std::vector<net::Outgoing> none;
  for (const net::Outgoing& frame : frames) {
    net::Message message{frame.header, frame.payload, {}, nullptr};
    message.header.type = frame.header.relayed == net::FrameType::layout ? net::FrameType::layout : frame.header.type;
    if (frame.header.relayed == net::FrameType::layout)
      copy->on_message(message, none);
    else
      CHECK(copy->restore(message) == (&frame == &frames.back()));
  }
  CHECK(same_state(shard, *copy));
  // The current version, by repeating the step that led there, and the version before.
  const net::Outgoing again = push(*copy, 3);
  CHECK(again.header.version == 4);
  CHECK((again.header.flags & net::FrameHeader::kSkipped) != 0);
  for (const std::uint64_t version : {3, 4}) {
    const test::Frame pull = test::pull_frame(0, piece, version);
    const auto pulled = [&](server::Shard& of) {
      net::Message message{pull.header, {}, {}, nullptr};
      message.header.dtype = type;
      std::vector<net::Outgoing> out;
      of.on_message(message, out);
      REQUIRE(out.size() == 1);
      REQUIRE(out[0].header.type == net::FrameType::values);
      return std::vector<std::byte>(out[0].payload.begin(), out[0].payload.end());
    };
    CHECK((pulled(shard) == pulled(*copy)));
  }
  for (std::uint64_t step = 4; step < 7; ++step) {
    push(shard, step);
    push(*copy, step);
  }
  CHECK(same_state(shard, *copy));
  CHECK(copy->version() == 7);
}
