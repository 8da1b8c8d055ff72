// The worker's parts of the exchange of rows: keys of a batch, frames, the client's protocol, the cache.
#include <algorithm>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/tests/support/keyed_data.h>
#include <psring/tests/support/values.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/exchange/tables/row_cache.h>
#include <psring/worker/exchange/tables/unique_keys.h>
#include <psring/worker/tables/table_protocol.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using psring::test::error_of;
using psring::test::normal_values;
using worker::test::KeyedData;

namespace {

TableLayout table_of(std::size_t width, std::size_t pieces, std::size_t most = 1 << 20) {
  return {.name = "rows", .width = width, .most_keys = most, .most_bags = most, .pieces = pieces};
}

Layout layout_of(const TableLayout& table, std::size_t owners) {
  Layout layout = make_layout({{"u", {{{"w", {3}, {}}}}}}, owners);
  layout.tables = {table};
  return layout;
}

std::vector<std::uint64_t> some_keys(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::set<std::uint64_t> keys;
  while (keys.size() < count) keys.insert(random());
  return {keys.begin(), keys.end()};
}

}  // namespace

TEST_CASE("the different keys of a batch, ascending, and the place of each") {
  std::mt19937_64 random(1);
  UniqueKeys unique(5000);
  for (const std::size_t count : {0, 1, 2, 17, 1000, 5000, 3}) {
    std::vector<std::uint64_t> keys(count);
    for (std::uint64_t& key : keys) key = random() % 7 == 0 ? random() : optim::mix64(random() % (count / 3 + 1));
    std::vector<std::uint64_t> found(count);
    std::vector<std::uint32_t> places(count);
    const std::size_t different = unique.find(keys, found, places);
    const std::set<std::uint64_t> expected(keys.begin(), keys.end());
    REQUIRE(different == expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), found.begin()));
    for (std::size_t i = 0; i < count; ++i) REQUIRE(found[places[i]] == keys[i]);
  }
  std::vector<std::uint64_t> alike(100, 5);  // one group of one key, and keys that differ in their last bits alone
  std::vector<std::uint64_t> found(100);
  std::vector<std::uint32_t> places(100);
  CHECK(unique.find(alike, found, places) == 1);
  for (std::size_t i = 0; i < 100; ++i) alike[i] = 99 - i;
  CHECK(unique.find(alike, found, places) == 100);
  CHECK(std::ranges::is_sorted(found));
}

TEST_CASE("frames of rows tile every piece of every owner") {
  const std::size_t owners = GENERATE(1, 2, 3, 7);
  const std::size_t width = GENERATE(16, 8192);
  const TableLayout table = table_of(width, 3);
  for (const std::size_t count : {0, 1, 5, 2000}) {
    const std::vector<std::uint64_t> keys = some_keys(count, count + 1);
    std::size_t bucket = 0;
    std::size_t row = 0;
    for (const RowFrame& frame : cut_rows(table, owners, keys)) {
      REQUIRE(frame.buckets.begin == bucket);
      REQUIRE(frame.rows.begin == row);
      REQUIRE(table_buckets(owners, frame.owner).contains(frame.buckets));
      REQUIRE(frame.rows.size() * table.row_bytes() <= std::size_t{1} << 20);
      for (std::size_t i = frame.rows.begin; i < frame.rows.end; ++i)
        REQUIRE(Range{optim::bucket_of(keys[i]), optim::bucket_of(keys[i]) + 1}.intersect(frame.buckets).size() == 1);
      bucket = frame.buckets.end;
      row = frame.rows.end;
    }
    CHECK(bucket == kBuckets);
    CHECK(row == count);
  }
}

TEST_CASE("keys of one bucket stay in one frame") {
  const TableLayout table = table_of(8192, 1);  // 32 rows a MiB
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 100; ++i) keys.push_back(i);
  const auto frames = cut_rows(table, 1, keys);
  REQUIRE(frames.size() == 1);
  CHECK(frames[0].rows == Range{0, 100});
  for (std::uint64_t i = 100; i < 600; ++i) keys.push_back(i);
  CHECK_THAT(error_of(ErrorKind::data, [&] { cut_rows(table, 1, keys); }),
             Contains("600 keys of one batch in bucket 0"));
}

TEST_CASE("the client takes the answers that it asked for, and no others") {
  const Layout layout = layout_of(table_of(2, 1), 2);
  TableProtocol protocol(layout, {});
  const std::vector<std::uint64_t> keys = some_keys(10, 3);
  std::vector<float> rows(20);
  std::vector<net::Outgoing> out;
  protocol.pull(0, {keys}, 4, rows, RowUse::train, out);
  REQUIRE(out.size() == 2);
  CHECK(!protocol.arrived(0, 4, RowUse::train));
  std::vector<float> answers = normal_values(20, 1);
  std::size_t first = 0;
  std::vector<net::Message> messages;
  for (const net::Outgoing& pull : out) {
    CHECK(pull.header.type == net::FrameType::rows_pull);
    CHECK(pull.header.unit == 1);
    CHECK(pull.header.step == 4);
    CHECK(pull.header.micro == pull.payload.size() / 8 * 2);
    net::Message message{pull.header, std::as_bytes(std::span(answers).subspan(first, pull.header.micro)), {}, nullptr};
    message.header.type = net::FrameType::rows;
    message.header.sender_role = net::Role::server;
    message.header.sender_rank = pull.to.rank;
    first += pull.header.micro;
    messages.push_back(message);
  }
  const auto refused = [&](auto&& change) {
    net::Message wrong = messages[0];
    change(wrong);
    return error_of(ErrorKind::protocol, [&] { protocol.on_message(wrong); });
  };
  CHECK_THAT(refused([](net::Message& m) { m.header.unit = 2; }), Contains("server 0 sent a frame for"));
  CHECK_THAT(refused([](net::Message& m) { m.header.unit = 0; }), Contains("sent a frame for"));
  CHECK_THAT(refused([](net::Message& m) { m.header.sender_rank = 1; }), Contains("not asked for"));
  CHECK_THAT(refused([](net::Message& m) { m.header.end -= 1; }), Contains("not asked for"));
  CHECK_THAT(refused([](net::Message& m) { m.header.version = 3; }), Contains("not asked for"));
  CHECK_THAT(refused([](net::Message& m) { m.header.version = 6; }), Contains("other rows"));
  CHECK_THAT(refused([](net::Message& m) { m.payload = m.payload.first(m.payload.size() - 1); }),
             Contains("other rows"));
  CHECK_THAT(refused([](net::Message& m) { m.header.type = net::FrameType::rows_ack; }), Contains("not pushed"));
  for (const net::Message& message : messages) protocol.on_message(message);
  CHECK(protocol.arrived(0, 4, RowUse::train));
  CHECK(rows == answers);
  CHECK_THAT(refused([](net::Message&) {}), Contains("not asked for"));
  out.clear();
  protocol.push(0, 4, rows, net::Encoding::dense, out);
  REQUIRE(out.size() == 2);
  CHECK(!protocol.acknowledged(0));
  for (net::Message message : messages) {
    message.header.type = net::FrameType::rows_ack;
    message.payload = {};
    protocol.on_message(message);
  }
  CHECK(protocol.acknowledged(0));
}

TEST_CASE("the rows of a pull ahead come in two parts, and go to their places") {
  TableLayout table = table_of(2, 1);
  table.lookahead = 1;
  const Layout layout = layout_of(table, 1);
  const std::size_t count = GENERATE(as<std::size_t>(), 0, 1, 63, 64, 65, 130);
  const std::size_t every = GENERATE(as<std::size_t>(), 1, 3, 1000);  // every so-manieth key is late
  TableProtocol protocol(layout, {});
  const std::vector<std::uint64_t> keys = some_keys(count, 3);
  const std::vector<float> values = normal_values(2 * count, 1);
  std::vector<float> rows(2 * count, -1.0F);
  std::vector<std::byte> landing(count * (8 + table.row_bytes()));
  std::vector<net::Outgoing> out;
  protocol.pull(0, {.keys = keys, .landing = landing}, 5, rows, RowUse::ahead, out);
  REQUIRE(out.size() == 1);
  CHECK(out[0].header.flags == net::kAhead);
  CHECK(out[0].header.micro == 2 * count + net::mark_bytes(count) / 4);
  std::vector<std::uint64_t> marks(net::mark_bytes(count) / 8);
  std::vector<float> parts[2];
  for (std::size_t i = 0; i < count; ++i) {
    const bool late = i % every == every - 1;
    if (!late) marks[i / 64] |= std::uint64_t{1} << i % 64;
    parts[late ? 1 : 0].insert(parts[late ? 1 : 0].end(), {values[2 * i], values[2 * i + 1]});
  }
  std::vector<std::byte> first(8 * marks.size() + 4 * parts[0].size());
  std::ranges::copy(std::as_bytes(std::span(parts[0])),
                    std::ranges::copy(std::as_bytes(std::span(marks)), first.begin()).out);
  net::Message message{out[0].header, first, {}, nullptr};
  message.header.type = net::FrameType::rows;
  message.header.sender_role = net::Role::server;
  net::Message second = message;
  second.header.flags = 0;
  second.payload = std::as_bytes(std::span(parts[1]));
  const auto refused = [&](net::Message wrong, auto&& change) {
    change(wrong);
    return error_of(ErrorKind::protocol, [&] { TableProtocol(protocol).on_message(wrong); });
  };
  if (parts[1].empty()) {  // it may come first
    TableProtocol other(protocol);
    other.on_message(second);
    CHECK(!other.arrived(0, 5, RowUse::train));
    CHECK_THAT(error_of(ErrorKind::protocol, [&] { TableProtocol(other).on_message(second); }), Contains("before the"));
    other.on_message(message);
    CHECK(other.arrived(0, 5, RowUse::train));
    CHECK(rows == values);
    std::ranges::fill(rows, -1.0F);
  } else {
    CHECK_THAT(refused(second, [](net::Message&) {}), Contains("the second part of rows before the first"));
    net::Message nothing = second;
    nothing.payload = {};
    TableProtocol other(protocol);
    other.on_message(nothing);
    CHECK_THAT(error_of(ErrorKind::protocol, [&] { other.on_message(message); }), Contains("other rows"));
    std::ranges::fill(rows, -1.0F);
  }
  std::vector<std::byte> longer = first;
  longer.resize(first.size() + 1);
  CHECK_THAT(refused(message, [&](net::Message& m) { m.payload = longer; }), Contains("other rows"));
  if (count % 64 != 0) {
    std::vector<std::byte> beyond = first;
    beyond[8 * marks.size() - 1] |= std::byte{128};
    CHECK_THAT(refused(message, [&](net::Message& m) { m.payload = beyond; }), Contains("with bits for more than its"));
  }
  protocol.on_message(message);
  CHECK(!protocol.arrived(0, 5, RowUse::train));
  CHECK_THAT(refused(message, [](net::Message&) {}), Contains("not asked for"));
  if (!parts[1].empty())
    CHECK_THAT(refused(second, [](net::Message& m) { m.payload = m.payload.first(4); }), Contains("other rows"));
  protocol.on_message(second);
  CHECK(protocol.arrived(0, 5, RowUse::train));
  CHECK(rows == values);
}

TEST_CASE("keys are counted by worker and owner") {
  KeyedData::Samples samples;
  std::mt19937_64 random(5);
  for (std::size_t i = 0; i < 23; ++i) samples.push_back({{random() % 9, random() % 9}, {random() % 50}});
  const KeyedData data(samples, {{"a", 2}, {"b"}});
  const Sampler sampler(23, 6, 3, 1, true);
  const KeyCounts counts(
      {.data = data, .sampler = sampler, .tables = {{0, 2}}, .workers = 3, .owners = 2, .first = 0, .last = 9});
  Sampler again = sampler;
  std::set<std::uint64_t> all;
  std::vector<std::uint64_t> by_worker(3);
  for (std::uint64_t step = 0; step < 9; ++step) {
    if (step % again.batches() == 0) again.begin_epoch(static_cast<std::uint32_t>(step / again.batches()));
    for (std::size_t worker = 0; worker < 3; ++worker) {
      std::set<std::uint64_t> own;
      for (const std::uint32_t sample : again.batch(worker, step % again.batches()))
        for (std::size_t field = 0; field < 2; ++field)
          for (const std::uint64_t id : samples[sample][field]) own.insert(optim::mix64(optim::fused_key(field, id)));
      by_worker[worker] += own.size();
      all.insert(own.begin(), own.end());
    }
  }
  for (std::size_t worker = 0; worker < 3; ++worker)
    CHECK(counts.moved(0, worker, 0).trained + counts.moved(0, worker, 1).trained == by_worker[worker]);
  CHECK(std::ranges::equal(counts.keys(0), all));
  CHECK(counts.keys(0, 0).size() + counts.keys(0, 1).size() == all.size());
  for (const std::uint64_t key : counts.keys(0, 1)) CHECK(optim::bucket_of(key) >= table_buckets(2, 1).begin);
}

TEST_CASE("rows of keys that the step before does not train are early, and each piece has a frame") {
  KeyedData::Samples samples;
  std::mt19937_64 random(6);
  for (std::size_t i = 0; i < 24; ++i) samples.push_back({{random() % 40}});
  const KeyedData data(samples, {{"a"}});
  const Sampler sampler(24, 8, 2, 1, true);
  const TableLayout layout{.name = "rows", .width = 2, .most_keys = 4, .pieces = 3, .lookahead = 1};
  const KeyCounts counts({.data = data,
                          .sampler = sampler,
                          .tables = {{0, 1}},
                          .workers = 2,
                          .owners = 2,
                          .last = 6,
                          .layouts = {layout},
                          .in_parts = true});
  Sampler again = sampler;
  std::set<std::uint64_t> before;
  std::vector<std::uint64_t> early(2);
  for (std::uint64_t step = 0; step < 6; ++step) {
    if (step % again.batches() == 0) again.begin_epoch(static_cast<std::uint32_t>(step / again.batches()));
    std::set<std::uint64_t> trained;
    for (std::size_t worker = 0; worker < 2; ++worker) {
      std::set<std::uint64_t> own;
      for (const std::uint32_t sample : again.batch(worker, step % again.batches()))
        own.insert(samples[sample][0].begin(), samples[sample][0].end());
      for (const std::uint64_t key : own) early[worker] += step > 0 && !before.contains(key) ? 1 : 0;
      trained.merge(own);
    }
    before = trained;
  }
  CHECK(early[0] > 0);
  for (std::size_t worker = 0; worker < 2; ++worker) {
    CHECK(counts.moved(0, worker, 0).early + counts.moved(0, worker, 1).early == early[worker]);
    CHECK(counts.moved(0, worker, 1).frames == 6 * 3);
  }
  CHECK(counts.steps() == 6);
}

TEST_CASE("no key leaves where the limits are the largest numbers") {
  constexpr std::size_t kMost = ~std::size_t{0};
  KeyedData::Samples samples;
  for (std::uint64_t i = 0; i < 24; ++i) samples.push_back({{i % 12}});
  const KeyedData data(samples, {{"a"}});
  const Sampler sampler(24, 6, 1, 1, false);
  for (const optim::RowRules& rules :
       {optim::RowRules{.ttl = kMost, .sweep = 1}, optim::RowRules{.ttl = 1, .keep = kMost, .sweep = 1},
        optim::RowRules{.most = kMost, .sweep = 1}, optim::RowRules{.most = kMost, .by_count = true, .sweep = 1}}) {
    const KeyCounts counts({.data = data, .sampler = sampler, .tables = {{0, 1}}, .rules = {rules}, .last = 4});
    CHECK(counts.keys(0).size() == 12);
  }
}

TEST_CASE("a cache keeps the rows of its last steps, the first to come leave first") {
  const TableLayout table{.name = "rows", .width = 1, .most_keys = 4};
  MemoryLedger ledger;
  CHECK(worker::RowCache::rows_in(table, 1000, 2) == 8);
  CHECK(worker::RowCache::rows_in(table, 40, 2) == 3);
  CHECK(worker::RowCache::rows_in(table, 11, 2) == 0);
  worker::RowCache cache(table, 5, 2, ledger);
  std::vector<float> rows;
  std::vector<std::uint8_t> here;
  const auto step = [&](std::uint64_t number, const std::vector<std::uint64_t>& keys) {
    rows.assign(keys.size(), 0);
    const auto found = cache.take(number, keys, std::as_writable_bytes(std::span(rows)));
    here.assign(found.begin(), found.end());
    for (std::size_t i = 0; i < keys.size(); ++i)  // the others come, with the step's number
      if (here[i] == 0) rows[i] = static_cast<float>(100 * number + keys[i]);
    for (int twice = 0; twice < 2; ++twice) cache.keep(number, keys, std::as_bytes(std::span(rows)));
    return rows;
  };
  CHECK(step(0, {1, 2, 3}) == std::vector<float>{1, 2, 3});
  CHECK(step(1, {2, 3, 4}) == std::vector<float>{2, 3, 104});
  CHECK(here == std::vector<std::uint8_t>{1, 1, 0});
  CHECK(step(2, {1, 5, 6}) == std::vector<float>{1, 205, 206});    // six rows: the first one leaves
  CHECK(step(2, {1, 2, 4}) == std::vector<float>{201, 2, 104});    // and now the second
  CHECK(step(3, {2, 3, 4}) == std::vector<float>{302, 303, 104});  // of step 0, that is too old
  CHECK(step(4, {4, 9}) == std::vector<float>{404, 409});
  CHECK(step(9, {2, 3, 4, 9}) == std::vector<float>{902, 903, 904, 909});
}
