// The worker's parts of tables: data, keys of a batch, layers, the client's protocol, counts.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/common/device/kernels.h>
#include <psring/common/net/row_flags.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/tests/support/values.h>
#include <psring/worker/data/criteo_like.h>
#include <psring/worker/data/key_counts.h>
#include <psring/worker/data/key_reader.h>
#include <psring/worker/exchange/tables/row_cache.h>
#include <psring/worker/exchange/tables/unique_keys.h>
#include <psring/worker/model/dlrm.h>
#include <psring/worker/model/embedding_bag.h>
#include <psring/worker/model/loss.h>
#include <psring/worker/model/test_metrics.h>
#include <psring/worker/tables/table_protocol.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using test::error_of;
using test::normal_values;

namespace {

/// A data set with the given keys: by sample, by field.
class KeyedData final : public Dataset {
 public:
  using Samples = std::vector<std::vector<std::vector<std::uint64_t>>>;
  KeyedData(Samples samples, std::vector<KeyField> fields) : samples_(std::move(samples)), fields_(std::move(fields)) {}
  std::size_t size() const override { return samples_.size(); }
  std::size_t input_cols() const override { return 1; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::size_t /*index*/, const SampleMemory& /*to*/) const override {}
  std::vector<KeyField> key_fields() const override { return fields_; }
  void read_keys(std::size_t index, std::vector<std::uint64_t>& keys, std::span<std::uint32_t> counts) const override {
    for (std::size_t field = 0; field < fields_.size(); ++field) {
      const auto& own = samples_[index][field];
      keys.insert(keys.end(), own.begin(), own.end());
      counts[field] = static_cast<std::uint32_t>(own.size());
    }
  }

 private:
  Samples samples_;
  std::vector<KeyField> fields_;
};

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

TEST_CASE("keys are read table by table, and hashed") {
  const KeyedData data({{{7}, {8, 9}, {}}, {{1}, {}, {~std::uint64_t{0}}}}, {{"a"}, {"b", 2}, {"c"}});
  KeyReader reader(data, {{0, 2}, {2, 3}});
  CHECK(reader.most_keys(0) == 3);
  CHECK(reader.most_keys(1) == 1);
  std::vector<std::vector<std::uint64_t>> keys(2);
  std::vector<std::size_t> bags(2);
  const auto read = [&](std::size_t sample) {
    reader.read(
        sample, [&](std::size_t table, std::uint64_t key) { keys[table].push_back(optim::unmix64(key)); },
        [&](std::size_t table) { ++bags[table]; });
  };
  read(0);
  read(1);
  CHECK(keys[0] == std::vector<std::uint64_t>{7, optim::fused_key(1, 8), optim::fused_key(1, 9), 1});
  CHECK(keys[1] == std::vector<std::uint64_t>{~std::uint64_t{0}});
  CHECK(bags == std::vector<std::size_t>{4, 2});
  std::vector<std::uint64_t> shared;  // equal ids of both fields are one key
  KeyReader(data, {{{0, 2}, true}})
      .read(
          0, [&](std::size_t, std::uint64_t key) { shared.push_back(optim::unmix64(key)); }, [](std::size_t) {});
  CHECK(shared == std::vector<std::uint64_t>{7, 8, 9});
  const KeyedData wide({{{std::uint64_t{1} << 56}, {}}}, {{"a"}, {"b"}});
  KeyReader refusing(wide, {{0, 2}});
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        refusing.read(
                            0, [](std::size_t, std::uint64_t) {}, [](std::size_t) {});
                      }),
             Contains("field 'a'") && Contains("more than 56 bits"));
  const KeyedData fields({}, std::vector<KeyField>(257, {"a"}));
  CHECK_THAT(error_of(ErrorKind::bug, [&] { KeyReader(fields, {{0, 257}}); }), Contains("a table of 257 key fields"));
  CHECK_NOTHROW(KeyReader(fields, {{{0, 257}, true}}));
  const KeyedData many({{{1, 2}}}, {{"a"}});
  KeyReader counting(many, {{0, 1}});
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        counting.read(
                            0, [](std::size_t, std::uint64_t) {}, [](std::size_t) {});
                      }),
             Contains("2 keys in field 'a', at most 1 expected"));
}

TEST_CASE("criteo-like data are a function of the seed, and their oracle is known") {
  const CriteoLikeSpec spec{.samples = 20'000, .dense = 4, .features = 8, .seed = 3};
  const DataSplit split = make_criteo_like(spec);
  CHECK(split.train->size() == 20'000);
  CHECK(split.test->size() == 2'000);
  const CriteoLike clicks(spec);
  CHECK(clicks.values(0) == 10);
  CHECK(clicks.values(7) == 1'000'000);
  std::vector<float> logits;
  std::vector<std::int32_t> classes;
  std::size_t clicked = 0;
  std::map<std::uint64_t, std::size_t> first_field;
  for (std::size_t sample = 0; sample < spec.samples; ++sample) {
    logits.push_back(static_cast<float>(clicks.logit(sample)));
    std::vector<float> input(4);
    std::int32_t target = 0;
    split.train->read(sample, {input, std::span(&target, 1)});
    classes.push_back(target);
    clicked += target == 1 ? 1 : 0;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> counts(8);
    split.train->read_keys(sample, keys, counts);
    REQUIRE(keys.size() == 8);
    ++first_field[keys[0]];
    for (std::size_t f = 0; f < 8; ++f) REQUIRE((keys[f] >= 1 && keys[f] <= clicks.values(f)));
  }
  const double rate = static_cast<double>(clicked) / 20'000;
  const double auc = area_under_curve(logits, classes);
  CAPTURE(rate, auc);
  CHECK(rate > 0.2);
  CHECK(rate < 0.4);
  CHECK(auc > 0.78);
  CHECK(auc < 0.88);
  CHECK(first_field.size() == 10);
  const double two = static_cast<double>(first_field[1]) / static_cast<double>(first_field[2]);
  CHECK(two == Approx((1 - std::pow(2, -0.05)) / (std::pow(2, -0.05) - std::pow(3, -0.05))).epsilon(0.1));
}

TEST_CASE("the area under the curve, with ties") {
  const std::vector<float> outputs{0.1F, 0.4F, 0.35F, 0.8F, 0.4F};
  const std::vector<std::int32_t> classes{0, 0, 1, 1, 1};
  // Pairs: 0.35 beats 0.1; 0.8 beats both; 0.4 beats 0.1 and ties with 0.4.
  CHECK(area_under_curve(outputs, classes) == Approx((1 + 2 + 1.5) / 6));
  CHECK(area_under_curve(std::vector<float>{1, 2}, std::vector<std::int32_t>{1, 1}) == 0.5);
}

TEST_CASE("binary cross-entropy") {
  const auto loss = make_binary_cross_entropy();
  std::vector<float> y{2, -30, 50};
  const std::vector<std::int32_t> targets{1, 1, 0};
  std::vector<float> dy(3);
  const LossResult result = loss->evaluate({y.data(), 3, 1}, Targets(targets), 0.5F, {dy.data(), 3, 1});
  CHECK(result.loss_sum == Approx(std::log1p(std::exp(-2.0)) + 30 + 50));
  CHECK(result.correct == 1);
  CHECK(dy[0] == Approx(0.5 * (1 / (1 + std::exp(-2.0)) - 1)));
  CHECK(dy[1] == Approx(-0.5));
  CHECK(dy[2] == Approx(0.5));
  CHECK_THAT(error_of(ErrorKind::data,
                      [&] {
                        loss->evaluate({y.data(), 1, 1}, Targets(std::vector<std::int32_t>{2}), 1, {});
                      }),
             Contains("target 2"));
}

TEST_CASE("an embedding bag sums rows, and a row's gradient is the sum over its occurrences") {
  const EmbeddingBag bag(0, 2, 3);
  CHECK(bag.output({4, 1}).cols == 6);
  const auto kernels = make_cpu_kernels(1, DType::f32);
  const std::vector<float> rows = normal_values(4 * 3, 1);
  std::vector<float> gradients(4 * 3);
  const std::vector<std::uint32_t> offsets{0, 2, 2, 3, 4};  // two samples of two features; the second bag is empty
  const std::vector<std::uint32_t> lookups{3, 1, 3, 0};
  TableView view{
      .rows = {rows.data(), 4, 3}, .gradients = {gradients.data(), 4, 3}, .offsets = offsets, .lookups = lookups};
  std::vector<float> x(2);
  std::vector<float> y(12);
  Forward forward{.kernels = *kernels,
                  .parameters = {},
                  .x = {x.data(), 2, 1},
                  .y = {y.data(), 2, 6},
                  .saved = {},
                  .saved_activations = {},
                  .scratch = {}};
  forward.table = &view;
  bag.forward(forward);
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(y[j] == rows[9 + j] + rows[3 + j]);
    CHECK(y[3 + j] == 0);
    CHECK(y[6 + j] == rows[9 + j]);
    CHECK(y[9 + j] == rows[j]);
  }
  const std::vector<float> dy = normal_values(12, 2);
  Backward backward{.kernels = *kernels,
                    .parameters = {},
                    .gradients = {},
                    .x = {x.data(), 2, 1},
                    .y = {y.data(), 2, 6},
                    .dy = {dy.data(), 2, 6},
                    .dx = {},
                    .saved = {},
                    .saved_activations = {},
                    .scratch = {}};
  backward.table = &view;
  bag.backward(backward);
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(gradients[9 + j] == dy[j] + dy[6 + j]);
    CHECK(gradients[3 + j] == dy[j]);
    CHECK(gradients[6 + j] == 0);
    CHECK(gradients[j] == dy[9 + j]);
  }
}

TEST_CASE("the products of pairs, and their gradient by differences") {
  const Interaction layer(3, 4);
  const auto kernels = make_cpu_kernels(1, DType::f32);
  std::vector<float> inputs = normal_values(2 * 4 * 4, 1);  // dense, then rows, of two samples each
  const std::vector<float> dy = normal_values(2 * 10, 2);
  const auto forward = [&](std::vector<float>& y) {
    const ConstMatrix in[] = {{inputs.data(), 2, 4}, {inputs.data() + 8, 2, 12}};
    Forward pass{.kernels = *kernels,
                 .parameters = {},
                 .x = in[0],
                 .y = {y.data(), 2, 10},
                 .saved = {},
                 .saved_activations = {},
                 .scratch = {}};
    pass.inputs = in;
    layer.forward(pass);
  };
  const auto loss = [&] {
    std::vector<float> y(20);
    forward(y);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
    return sum;
  };
  const ConstMatrix in[] = {{inputs.data(), 2, 4}, {inputs.data() + 8, 2, 12}};
  std::vector<float> y(20);
  forward(y);
  std::vector<float> dx(32);
  bool fresh[] = {true, true};
  const Gradient gradients[] = {{std::span(dx).first(8), fresh[0]}, {std::span(dx).subspan(8), fresh[1]}};
  Backward pass{.kernels = *kernels,
                .parameters = {},
                .gradients = {},
                .x = in[0],
                .y = {y.data(), 2, 10},
                .dy = {dy.data(), 2, 10},
                .dx = {dx.data(), 2, 4},
                .saved = {},
                .saved_activations = {},
                .scratch = {}};
  pass.inputs = in;
  pass.d_inputs = gradients;
  layer.backward(pass);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float before = inputs[i];
    inputs[i] = before + 0.01F;
    const double above = loss();
    inputs[i] = before - 0.01F;
    const double below = loss();
    inputs[i] = before;
    CHECK(dx[i] == Approx((above - below) / 0.02).epsilon(1e-3).margin(1e-3));
  }
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

TEST_CASE("a model's specification is checked") {
  const auto refused = [](const std::string& text) {
    return error_of(ErrorKind::usage, [&] { make_dlrm(Spec::parse("--model", text)); });
  };
  CHECK_THAT(refused("dlrm:features=257"), Contains("at most 256 features"));
  CHECK_THAT(refused("dlrm:dim=8,bottom=4-4"), Contains("bottom ends in a width of 4, dim=8 expected"));
  CHECK_THAT(refused("dlrm:top=4-x"), Contains("top: expected WIDTH-WIDTH"));
  CHECK_THAT(refused("dlrm:tables=2"), Contains("unknown key 'tables'"));
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
