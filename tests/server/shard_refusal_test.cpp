// Frames that the protocol does not allow change nothing; random frames end no server.
#include <algorithm>
#include <deque>
#include <functional>
#include <random>

#include <catch2/catch.hpp>

#include <psring/common/net/layout_message.h>
#include <psring/optim/exact_sum.h>
#include <psring/tests/support/shard_cluster.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using namespace psring::test;

namespace {

struct Bad {
  const char* name;
  const char* says;
  std::function<void(Frame&)> spoil;
};

std::vector<float> gradient(const Layout& layout, std::size_t unit, std::uint64_t seed) {
  return normal_values(layout.units[unit].elements, seed);
}

/// All mistakes of a push, push_pull or pull of `piece` that a shard has to refuse.
std::vector<Bad> bad_requests(FrameType type) {
  std::vector<Bad> list{
      {"unknown unit", "no unit 7", [](Frame& f) { f.header.unit = 7; }},
      {"the largest unit", "no unit", [](Frame& f) { f.header.unit = 0xFFFFFFFF; }},
      {"a piece of another shard", "no piece", [](Frame& f) { f.header.begin -= 256, f.header.end -= 256; }},
      {"half a piece", "no piece", [](Frame& f) { f.header.end -= 256; }},
      {"a piece and a bit", "no piece", [](Frame& f) { f.header.end += 256; }},
      {"behind the end", "no piece", [](Frame& f) { f.header.begin += 1 << 20, f.header.end += 1 << 20; }},
      {"no worker of the job", "no worker", [](Frame& f) { f.header.sender_rank = 2; }},
      {"the largest worker", "no worker", [](Frame& f) { f.header.sender_rank = 0xFFFFFFFF; }},
      {"a server", "no worker", [](Frame& f) { f.header.sender_role = Role::server; }},
      {"elements of another type", "f32", [](Frame& f) { f.header.dtype = DType::u8; }},
      {"a byte too many", "bytes", [](Frame& f) { f.payload.push_back({}); }}};
  if (type != FrameType::push)
    list.push_back({"too little space", "space", [](Frame& f) { f.reply_space = f.reply_space.first(64); }});
  if (type == FrameType::pull) return list;
  list.push_back({"nothing", "bytes", [](Frame& f) { f.payload.clear(); }});
  list.push_back({"a future step", "push of step 5", [](Frame& f) { f.header.step = 5; }});
  list.push_back({"a micro-batch too many", "micro-batch 1 of 1", [](Frame& f) { f.header.micro = 1; }});
  list.push_back({"the last step of all", "push of step", [](Frame& f) { f.header.step = UINT64_MAX; }});
  return list;
}

void check_failure(const std::vector<Reply>& replies, const Frame& frame, const char* says) {
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].header.type == FrameType::failed);
  CHECK(replies[0].to == frame.header.sender());
  CHECK(replies[0].header.unit == frame.header.unit);
  CHECK_THAT(replies[0].text(), Catch::Contains(says));
}

std::vector<float> after_two_steps(ShardCluster& cluster, const Layout& layout, const std::function<void()>& disturb) {
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (std::uint32_t worker = 0; worker < 2; ++worker) {
      for (const Piece& piece : make_pieces(layout)) {
        if (piece.owner != 1) continue;
        cluster.send_only(1, push_frame(worker, piece, step, gradient(layout, piece.unit, 10 * step + worker)));
        disturb();
      }
    }
  }
  std::vector<float> values;
  for (const Piece& piece : make_pieces(layout))
    if (piece.owner == 1)
      for (const Reply& reply : cluster.send_only(1, pull_frame(0, piece, 2)))
        std::ranges::copy(reply.values(), std::back_inserter(values));
  return values;
}

}  // namespace

TEST_CASE("a request that is not allowed is answered with failed and changes nothing") {
  const Layout layout = small_layout(2);
  const auto type = GENERATE(values({FrameType::push, FrameType::push_pull, FrameType::pull}));
  ShardCluster calm({.servers = 2, .workers = 2, .optimizer = "adam"});
  ShardCluster disturbed({.servers = 2, .workers = 2, .optimizer = "adam"});
  for (ShardCluster* cluster : {&calm, &disturbed}) cluster->open(layout);
  const std::vector<Piece> pieces = make_pieces(layout);
  const Piece& piece = *std::ranges::find_if(pieces, [](const Piece& p) { return p.owner == 1; });
  std::vector<float> space(piece.range.size(), -1.0F);
  const auto disturb = [&] {
    for (const Bad& bad : bad_requests(type)) {
      INFO(bad.name);
      Frame frame = type == FrameType::pull ? pull_frame(1, piece, 9)
                                            : push_frame(1, piece, 1, gradient(layout, piece.unit, 99), type);
      frame.reply_space = std::as_writable_bytes(std::span(space));
      bad.spoil(frame);
      check_failure(disturbed.send_only(1, frame), frame, bad.says);
    }
  };
  const std::vector<float> expected = after_two_steps(calm, layout, [] {});
  REQUIRE(expected.size() == layout.elements() / 2);
  CHECK((after_two_steps(disturbed, layout, disturb) == expected));
  CHECK(std::ranges::all_of(space, [](float value) { return value == -1.0F; }));
}

TEST_CASE("frames that no server takes, and what comes before a layout, fail") {
  const Layout layout = small_layout(1);
  const Piece piece = make_pieces(layout)[0];
  ShardCluster cluster({.workers = 2});
  for (const FrameType type : {FrameType::push, FrameType::push_pull, FrameType::initial}) {
    const Frame frame = push_frame(0, piece, 0, gradient(layout, 0, 1), type);
    check_failure(cluster.send(0, frame), frame, "before any layout");
  }
  const Frame pull = pull_frame(0, piece, 0);
  check_failure(cluster.send(0, pull), pull, "before any layout");
  cluster.open(layout);
  for (const FrameType type :
       {FrameType::hello, FrameType::challenge, FrameType::proof, FrameType::accepted, FrameType::refused,
        FrameType::layout_ok, FrameType::push_ack, FrameType::values, static_cast<FrameType>(200)}) {
    const Frame frame = push_frame(0, piece, 0, gradient(layout, 0, 1), type);
    check_failure(cluster.send(0, frame), frame, "takes no");
  }
  const Frame failed = push_frame(0, piece, 0, gradient(layout, 0, 1), FrameType::failed);
  CHECK(cluster.send(0, failed).empty());  // no answer to an answer
  const Frame initial = push_frame(0, piece, 0, gradient(layout, 0, 1), FrameType::initial);
  check_failure(cluster.send(0, initial), initial, "after the start");
}

TEST_CASE("a layout that is not everybody's, or not possible, is refused; the next one is taken") {
  const Layout layout = small_layout(2);
  ShardCluster cluster({.servers = 2, .workers = 2, .optimizer = "adam", .clip_norm = 1, .memory_bytes = 1 << 20});
  const auto refused = [&](const Frame& frame, const char* says) {
    check_failure(cluster.send_only(0, frame), frame, says);
  };
  refused({layout_frame(0, layout).header, {}, {}}, "ends too early");
  refused(layout_frame(0, small_layout(3)), "cut among 3 servers");
  refused(layout_frame(2, layout), "no worker");
  Frame from_server = layout_frame(0, layout);
  from_server.header.sender_role = Role::server;
  from_server.header.sender_rank = 1;
  refused(from_server, "no worker");
  for (const std::size_t elements : {std::size_t{1} << 17, std::size_t{1} << 40, std::size_t{1} << 48})
    refused(layout_frame(0, make_layout({{"u", {{{"a", {elements}, {}}, 0}}}}, 2)), "MiB are allowed");
  Layout many_pushes = layout;  // small, but each piece waits for very many pushes
  many_pushes.pushes = 1 << 16;
  refused(layout_frame(0, many_pushes), "MiB are allowed");

  cluster.open(layout);
  refused(layout_frame(1, small_layout(3)), "worker 1 has another model than worker 0: owners: 3, not 2");
  refused(layout_frame(1, layout, 4), "another model than worker 0: seed 4, not 3");
  refused(layout_frame(1, layout, 3, true), "initial values from elsewhere");
  refused({layout_frame(0, layout).header, {}, {}}, "ends too early");
  const auto replies = cluster.send_only(0, layout_frame(1, layout, 4));
  CHECK(replies[0].header.version == 3);  // the exit status of the worker
  CHECK(cluster.pull(layout, 0, 0).size() == layout.units[0].elements);
}

TEST_CASE("a server that only aggregates refuses a layout of several micro-batches") {
  Layout layout = small_layout(1);
  layout.pushes = 2;
  ShardCluster cluster({.workers = 1, .optimizer = ""});
  const Frame frame = layout_frame(0, layout);
  check_failure(cluster.send_only(0, frame), frame, "2 micro-batches");
}

TEST_CASE("verdicts that nobody asked for are refused") {
  const Layout layout = small_layout(3);
  Frame verdict;
  verdict.header.type = FrameType::verdict;
  verdict.header.sender_role = Role::server;
  verdict.payload.resize(optim::ExactSum::kBytes);

  ShardCluster without({.servers = 3, .workers = 1});
  without.open(layout);
  check_failure(without.send_only(1, verdict), verdict, "nobody asked for");

  ShardCluster with({.servers = 3, .workers = 1, .clip_norm = 1});
  check_failure(with.send_only(1, verdict), verdict, "not due");
  with.open(layout);
  check_failure(with.send_only(1, verdict), verdict, "not due");
  for (const Piece& piece : make_pieces(layout))
    if (piece.owner == 1) with.send_only(1, push_frame(0, piece, 0, gradient(layout, piece.unit, 1)));
  Frame from_worker = verdict;
  from_worker.header.sender_role = Role::worker;
  check_failure(with.send_only(1, from_worker), from_worker, "not due");
  Frame from_other = verdict;
  from_other.header.sender_rank = 2;
  check_failure(with.send_only(1, from_other), from_other, "not due");
  Frame of_another_round = verdict;
  of_another_round.header.step = 1;
  check_failure(with.send_only(1, of_another_round), of_another_round, "round 0 is due");
  Frame two_sums = verdict;
  two_sums.payload.resize(2 * optim::ExactSum::kBytes);
  check_failure(with.send_only(1, two_sums), two_sums, "are due");
  CHECK(with.shard(1).version() == 0);
  with.send_only(1, verdict);
  CHECK(with.shard(1).version() == 1);
}

TEST_CASE("a server that cannot go on says so to its shard's owner") {
  ShardCluster cluster({.servers = 2, .workers = 1, .clip_norm = 1});
  Frame failed;
  failed.header.type = FrameType::failed;
  failed.header.sender_role = Role::server;
  failed.payload = {std::byte{'n'}, std::byte{'o'}};
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { cluster.send_only(1, failed); }), Catch::Contains("server 0: no"));
}

namespace {

/// Random frames around valid ones: most fields right, one or two not.
class Fuzzer {
 public:
  Fuzzer(const Layout& layout, std::uint64_t seed) : layout_(layout), pieces_(make_pieces(layout)), random_(seed) {}

  Frame next() {
    const Piece& piece = pieces_[random_() % pieces_.size()];
    const auto worker = static_cast<std::uint32_t>(random_() % 2);
    Frame frame;
    switch (random_() % 8) {
      case 0:
        frame = layout_frame(worker, layout_, 3, random_() % 4 == 0);
        break;
      case 1:
        frame = pull_frame(worker, piece, random_() % 4);
        break;
      case 2:
        frame.header.type = FrameType::verdict;
        frame.header.sender_role = Role::server;
        frame.header.sender_rank = static_cast<std::uint32_t>(random_() % 3);
        frame.header.step = random_() % 4;
        frame.payload.resize(optim::ExactSum::kBytes * (1 + random_() % 9));
        break;
      case 3:
        frame = push_frame(0, piece, 0, gradient(layout_, piece.unit, 5), FrameType::initial);
        break;
      default:
        frame = push_frame(worker, piece, random_() % 4, gradient(layout_, piece.unit, 5),
                           random_() % 2 == 0 ? FrameType::push : FrameType::push_pull);
        frame.header.flags = static_cast<std::uint8_t>(random_() % 4);
    }
    if (random_() % 2 == 0) lend_space(frame);
    for (std::size_t left = random_() % 3; left > 0; --left) spoil(frame);
    if (frame.header.type == FrameType::failed)
      frame.header.sender_role = Role::worker;  // from a server it would end the shard
    return frame;
  }

 private:
  void lend_space(Frame& frame) {
    const std::size_t bytes = random_() % 4 == 0 ? random_() % 9000 : frame.header.range().size() * sizeof(float);
    kept_.emplace_back(bytes / sizeof(float));  // a block of its own, so that a sanitizer sees a store beyond its end
    frame.reply_space = std::as_writable_bytes(std::span(kept_.back()));
  }

  std::uint64_t number() {
    static constexpr std::uint64_t kOdd[] = {0, 1, 255, 256, 4096, UINT32_MAX, UINT64_MAX - 1, UINT64_MAX};
    return random_() % 2 == 0 ? kOdd[random_() % std::size(kOdd)] : random_();
  }

  void spoil(Frame& frame) {
    FrameHeader& header = frame.header;
    switch (random_() % 11) {
      case 0:
        header.unit = static_cast<std::uint32_t>(number());
        break;
      case 1:
        header.begin = number();
        header.end = std::max<std::uint64_t>(header.begin, header.end);  // the decoder refuses other headers
        break;
      case 2:
        header.end = std::max<std::uint64_t>(header.begin, number());
        break;
      case 3:
        header.step = number();
        break;
      case 4:
        header.version = number();
        break;
      case 5:
        header.sender_rank = static_cast<std::uint32_t>(number());
        break;
      case 6:
        header.sender_role = static_cast<Role>(random_() % 4);
        break;
      case 7:
        header.dtype = static_cast<DType>(random_() % kDTypes);
        break;
      case 8:
        header.type = static_cast<FrameType>(1 + random_() % (kFrameTypes - 1));
        break;
      case 9:
        frame.payload.resize(random_() % (frame.payload.size() + 300));
        break;
      default:
        for (std::size_t i = 0; i < 4 && !frame.payload.empty(); ++i)
          frame.payload[random_() % frame.payload.size()] ^= static_cast<std::byte>(1U << random_() % 8);
    }
  }

  const Layout layout_;
  const std::vector<Piece> pieces_;
  std::mt19937_64 random_;
  std::deque<std::vector<float>> kept_;  ///< spaces: a shard may store into them much later
};

}  // namespace

TEST_CASE("what is not trained takes no push, and has one version") {
  const auto optimizer = GENERATE(values<std::string>({"adam", ""}));
  Layout layout = small_layout(1);
  layout.units[0].trained = false;
  ShardCluster cluster({.servers = 1, .workers = 1, .optimizer = optimizer});
  cluster.open(layout);
  const std::vector<Piece> pieces = make_pieces(layout);
  const std::vector<float> values = gradient(layout, 0, 1);
  for (const FrameType type : {FrameType::push, FrameType::push_pull}) {
    const Frame push = push_frame(0, pieces[0], 0, values, type);
    check_failure(cluster.send(0, push), push, "unit 0, which is not trained");
  }
  Frame later = pull_frame(0, pieces[0], 1);
  if (optimizer.empty()) later.header.version = 0;  // such a server does not hold the unit
  check_failure(cluster.send(0, later), later, "unit 0, which is not trained");
  if (optimizer.empty()) return;
  const std::vector<float> before = cluster.pull(layout, 0, 0);
  CHECK(before.size() == layout.units[0].elements);
  for (std::uint64_t step = 0; step < 3; ++step)
    for (const Piece& piece : pieces)
      if (piece.unit == 1) cluster.send(0, push_frame(0, piece, step, gradient(layout, 1, step)));
  CHECK(cluster.shard(0).version() == 3);
  CHECK(cluster.pull(layout, 0, 0) == before);
}

TEST_CASE("random frames end no shard") {
  const auto rules = GENERATE(
      values<ShardRules>({{.servers = 1, .workers = 2, .memory_bytes = 1 << 20},
                          {.servers = 2, .workers = 2, .optimizer = "", .memory_bytes = 1 << 20},
                          {.servers = 3, .workers = 2, .optimizer = "adam", .clip_norm = 1, .memory_bytes = 1 << 20},
                          {.servers = 3, .workers = 2, .optimizer = "lamb", .clip_norm = 1, .memory_bytes = 1 << 20}}));
  Layout layout = small_layout(rules.servers);
  layout.units[1].trained = GENERATE(true, false);
  std::size_t failed = 0;
  std::size_t done = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(rules.servers, rules.optimizer, seed);
    Fuzzer fuzzer(layout, seed);
    ShardCluster cluster(rules, seed);
    for (std::size_t i = 0; i < 400; ++i) {
      for (const Reply& reply : cluster.send_only(i % rules.servers, fuzzer.next()))
        ++(reply.header.type == FrameType::failed ? failed : done);
    }
    // After any frames, a shard still answers.
    const auto known = layout_frame(0, layout);
    for (std::size_t server = 0; server < rules.servers; ++server) CHECK(cluster.send_only(server, known).size() == 1);
  }
  CHECK(failed > 1000);
  CHECK(done > 200);
}
