// The rows of a table: index, records, rules, initial values, and updates by several workers.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/optim/rows/row_figures.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/optim/rows/table_rows.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;
using test::normal_values;

namespace {

std::vector<std::uint64_t> hashed_keys(std::size_t count, std::uint64_t seed) {
  const CounterRng rng({.seed = seed});
  std::vector<std::uint64_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = mix64(std::uint64_t{rng.bits(2 * i)} << 32 | rng.bits(2 * i + 1));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::unique_ptr<RowRule> rule(const std::string& text) { return make_row_rule(Spec::parse("--table-optimizer", text)); }

TableRows::Options options_of(const RowRule& rule, std::size_t width) {
  return {.number = 0,
          .width = width,
          .init = {Init::Kind::uniform, 0.5F},
          .seed = 7,
          .rule = &rule,
          .most_bytes = std::size_t{64} << 20};
}

std::vector<float> read(const TableRows& rows, std::span<const std::uint64_t> keys, std::size_t width) {
  std::vector<float> values(keys.size() * width);
  rows.read(keys, values);
  return values;
}

/// One element of a rule's formula in f64: the new w, state in a and b.
struct State {
  double a = 0;
  double b = 0;
};

double formula(const std::string& name, State& s, double w, double g, double mean_square, int t) {
  constexpr double kLr = 0.05;
  if (name == "sgd") return w - kLr * g;
  if (name == "adagrad") {
    s.a += g * g;
    return w - kLr * g / (std::sqrt(s.a) + 1e-10);
  }
  if (name == "rowwise-adagrad") {
    s.a += mean_square;
    return w - kLr * g / (std::sqrt(s.a) + 1e-8);
  }
  if (name == "adam") {  // torch.optim.SparseAdam
    s.a = 0.9 * s.a + 0.1 * g;
    s.b = 0.999 * s.b + 0.001 * g * g;
    return w - kLr * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * s.a / (std::sqrt(s.b) + 1e-8);
  }
  const double before = std::sqrt(s.b);  // ftrl:l1=0.01,l2=0.1
  s.b += g * g;
  s.a += g - (std::sqrt(s.b) - before) / kLr * w;
  if (std::fabs(s.a) <= 0.01) return 0;
  return -(s.a - std::copysign(0.01, s.a)) / ((1 + std::sqrt(s.b)) / kLr + 0.1);
}

}  // namespace

TEST_CASE("hashing keys is undone") {
  for (const std::uint64_t key : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{1} << 56}) {
    CHECK(unmix64(mix64(key)) == key);
    CHECK(mix64(unmix64(key)) == key);
  }
  CHECK(mix64(1) == 0x5692161D100B05E5U);  // splitmix64's finaliser
  CHECK(bucket_of(~std::uint64_t{0}) == kBuckets - 1);
  CHECK(fused_key(3, 5) == (std::uint64_t{3} << 56 | 5));
}

TEST_CASE("every owner of a table has blocks of buckets") {
  for (const std::size_t owners : {1, 2, 3, 5, 64, 65, 256, 4096}) {
    std::size_t next = 0;
    std::size_t least = kBuckets;
    std::size_t most = 0;
    for (std::size_t owner = 0; owner < owners; ++owner) {
      const Range range = table_buckets(owners, owner);
      REQUIRE(range.begin == next);
      REQUIRE(range.size() % kCut == 0);
      next = range.end;
      least = std::min(least, range.size());
      most = std::max(most, range.size());
      std::size_t piece_end = range.begin;
      for (std::size_t piece = 0; piece < 16; ++piece) {
        REQUIRE(table_piece(range, 16, piece).begin == piece_end);
        piece_end = table_piece(range, 16, piece).end;
      }
      REQUIRE(piece_end == range.end);
    }
    CHECK(next == kBuckets);
    CHECK(most - least <= kCut);
    CHECK(least > 0);
  }
}

TEST_CASE("an index finds the rows that it was given, and books slots by the number of keys") {
  MemoryLedger ledger;
  const std::vector<std::uint64_t> keys = hashed_keys(30'000, 1);
  const std::vector<std::uint64_t> others = hashed_keys(1'000, 2);
  {
    RowIndex index(ledger);
    std::array<std::size_t, RowIndex::kMaps> counts{};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      index.insert(keys[i], static_cast<std::uint32_t>(i));
      ++counts[RowIndex::map_of(keys[i])];
      if (i % 997 == 0) CHECK(ledger.current_bytes(Category::index) == RowIndex::booked_bytes(counts));
    }
    CHECK(index.size() == keys.size());
    const std::size_t booked = ledger.current_bytes(Category::index);
    CHECK(booked == RowIndex::booked_bytes(counts));
    CHECK(booked >= 17 * keys.size());
    CHECK(booked <= 17 * keys.size() * 4);
    std::vector<std::uint32_t> rows(keys.size());
    index.find(keys, rows);
    for (std::size_t i = 0; i < keys.size(); ++i) REQUIRE(rows[i] == i);
    rows.resize(others.size());
    index.find(others, rows);
    CHECK(std::ranges::count(rows, RowIndex::kNoRow) == std::ssize(others));
    CHECK_THROWS_AS(index.insert(keys[0], 0), Error);
  }
  CHECK(ledger.current_bytes() == 0);
}

TEST_CASE("the maps of an index grow one after the other") {
  std::array<std::size_t, RowIndex::kMaps> keys{};
  keys.fill(64);
  std::size_t grows = 0;
  std::size_t most = 0;
  for (std::size_t n = 64; n < 128; ++n) {
    std::size_t here = 0;
    for (std::size_t map = 0; map < RowIndex::kMaps; ++map) {
      const std::size_t before = RowIndex::booked_bytes(keys);
      ++keys[map];
      if (RowIndex::booked_bytes(keys) != before) ++here;
    }
    grows += here;
    most = std::max(most, here);
  }
  CHECK(grows == RowIndex::kMaps);
  CHECK(most <= RowIndex::kMaps / 16);
}

TEST_CASE("records book steps of 2 MiB as parameters and optimizer state") {
  MemoryLedger ledger;
  const RecordMemory::Sizes sizes{.values = 16, .state = 1};
  CHECK(sizes.stride() == 96);
  {
    RecordMemory records(sizes, std::size_t{8} << 20, ledger);
    CHECK(ledger.current_bytes() == 0);
    const std::size_t step = RecordMemory::kStepBytes / sizes.stride();
    for (std::size_t i = 0; i < step + 1; ++i) CHECK(records.add() == i);
    CHECK(ledger.current_bytes() == 2 * RecordMemory::kStepBytes);
    CHECK(ledger.current_bytes(Category::parameters) == sizes.parameter_bytes(2 * RecordMemory::kStepBytes));
    records.header(3).key = 5;
    records.values(4)[16] = 2;
    CHECK(records.header(3).key == 5);
    CHECK(records.header(4).key == 0);
    CHECK_THAT(error_of(ErrorKind::data,
                        [&] {
                          for (;;) records.add();
                        }),
               Contains("fills the memory of this host"));
  }
  CHECK(ledger.current_bytes() == 0);
}

TEST_CASE("the memory of each category grows with the rows, whatever the width") {
  for (const std::size_t width : {1U, 9U, 512U, 4097U, 8192U}) {
    const RecordMemory::Sizes sizes{.values = width, .state = 1};
    for (std::size_t steps = 1; steps < 64; ++steps) {
      const std::size_t before = sizes.parameter_bytes((steps - 1) * RecordMemory::kStepBytes);
      const std::size_t after = sizes.parameter_bytes(steps * RecordMemory::kStepBytes);
      CHECK(after >= before);
      CHECK(after - before <= RecordMemory::kStepBytes);
    }
  }
}

TEST_CASE("the figures of rows name those with the most updates") {
  MemoryLedger ledger;
  const auto sgd = rule("sgd");
  TableRows rows(options_of(*sgd, 1), ledger);
  const std::vector<std::uint64_t> keys = hashed_keys(40, 4);
  std::vector<float> gradients(keys.size());
  for (std::size_t update = 1; update <= keys.size(); ++update) {  // key i is in i + 1 updates
    const std::span<const std::uint64_t> present = std::span(keys).last(keys.size() - update + 1);
    const std::vector<std::vector<RowGradients>> workers{
        {{present, std::span<const float>(gradients).first(present.size())}}};
    rows.update({.count = update, .lr = 0.1F}, workers, 1);
  }
  const Json figures = row_figures({.name = "rows"}, rows);
  CHECK(figures["rows"] == Json(40));
  CHECK(figures["updates"] == Json(40 * 41 / 2));
  REQUIRE(figures["hot"].size() == 16);
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(figures["hot"][i]["updates"] == Json(40 - i));
    CHECK(std::stoull(figures["hot"][i]["key"].get<std::string>(), nullptr, 16) == unmix64(keys[39 - i]));
  }
  CHECK(row_figures({.name = "rows"}, TableRows(options_of(*sgd, 1), ledger))["hot"].size() == 0);
}

TEST_CASE("a row's initial values depend on seed, table and key") {
  const Init init{Init::Kind::uniform, 0.5F};
  std::vector<float> a(8);
  std::vector<float> b(8);
  initial_row(init, 7, 0, 1, a);
  initial_row(init, 7, 0, 1, b);
  CHECK(a == b);
  for (const auto& [seed, table, key] :
       std::vector<std::tuple<std::uint64_t, std::size_t, std::uint64_t>>{{8, 0, 1},
                                                                          {7, 1, 1},
                                                                          {7, 0, 2},
                                                                          {7, 0, 1 + (std::uint64_t{1} << 32)},
                                                                          {7, 0, 1 + (std::uint64_t{1} << 48)}}) {
    initial_row(init, seed, table, key, b);
    CHECK(a != b);
  }
  for (const float value : a) CHECK(std::fabs(value) <= 0.5F);
}

TEST_CASE("a read changes nothing, and a key without a row has its initial values") {
  MemoryLedger ledger;
  const auto sgd = rule("sgd");
  TableRows rows(options_of(*sgd, 4), ledger);
  const std::vector<std::uint64_t> keys = hashed_keys(100, 3);
  const std::vector<float> values = read(rows, keys, 4);
  CHECK(rows.size() == 0);
  std::vector<float> first(4);
  initial_row({Init::Kind::uniform, 0.5F}, 7, 0, keys[0], first);
  CHECK(std::equal(first.begin(), first.end(), values.begin()));
  std::vector<float> narrow(keys.size() * 2);
  rows.read(keys, Elements(reinterpret_cast<std::byte*>(narrow.data()), keys.size() * 4, DType::bf16));
  std::vector<float> widened(keys.size() * 4);
  widen(ConstElements(reinterpret_cast<const std::byte*>(narrow.data()), widened.size(), DType::bf16), widened);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(widened[i] == Approx(values[i]).epsilon(0.01));
}

TEST_CASE("rules follow their formulas over 50 updates") {
  const std::string text = GENERATE("sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl:l1=0.01,l2=0.1");
  const std::string name = text.substr(0, text.find(':'));
  CAPTURE(name);
  constexpr std::size_t kWidth = 5;
  MemoryLedger ledger;
  const auto own = rule(text);
  CHECK(own->name() == name);
  TableRows rows(options_of(*own, kWidth), ledger);
  const std::vector<std::uint64_t> keys = hashed_keys(200, 4);
  std::map<std::uint64_t, std::vector<double>> w;
  std::map<std::uint64_t, std::vector<State>> state;
  for (const std::uint64_t key : keys) {
    std::vector<float> values(kWidth);
    initial_row({Init::Kind::uniform, 0.5F}, 7, 0, key, values);
    w[key].assign(values.begin(), values.end());
    state[key].resize(kWidth);
  }
  for (int t = 1; t <= 50; ++t) {
    std::vector<std::uint64_t> some;  // a different part of the keys in each update
    for (std::size_t i = 0; i < keys.size(); ++i)
      if ((i * 7 + static_cast<std::size_t>(t)) % 3 != 0) some.push_back(keys[i]);
    const std::vector<float> gradients = normal_values(some.size() * kWidth, static_cast<std::uint64_t>(t), 0.3F);
    const std::vector<std::vector<RowGradients>> workers{{{some, gradients}}};
    rows.update({.count = static_cast<std::uint64_t>(t), .lr = 0.05F}, workers, 1);
    for (std::size_t i = 0; i < some.size(); ++i) {
      double square = 0;
      for (std::size_t j = 0; j < kWidth; ++j) square += std::pow(gradients[i * kWidth + j], 2);
      for (std::size_t j = 0; j < kWidth; ++j)
        w[some[i]][j] = formula(name, state[some[i]][j], w[some[i]][j], gradients[i * kWidth + j], square / kWidth, t);
    }
  }
  CHECK(rows.size() == keys.size());
  const std::vector<float> values = read(rows, keys, kWidth);
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < kWidth; ++j)
      REQUIRE(values[i * kWidth + j] == Approx(w[keys[i]][j]).epsilon(2e-5).margin(2e-6));
}

TEST_CASE("coded gradients of rows are decoded one by one, and added up in f32") {
  const std::string name = GENERATE("bf16", "int8");
  constexpr std::size_t kWidth = 6;
  const auto codec = make_codec(name, false);
  const auto adagrad = rule("adagrad");
  const std::vector<std::uint64_t> keys = hashed_keys(150, 11);
  std::vector<std::vector<std::uint64_t>> of_worker(3);
  std::vector<std::vector<std::byte>> codes(3);
  std::vector<std::vector<float>> decoded(3);
  std::vector<std::vector<RowGradients>> coded_lists;
  std::vector<std::vector<RowGradients>> lists;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      if ((i + worker) % 3 != 0) of_worker[worker].push_back(keys[i]);
    const std::size_t rows = of_worker[worker].size();
    std::vector<float> values = normal_values(rows * kWidth, worker, 0.1F);
    for (std::size_t j = 0; j < kWidth; ++j) values[j] = 0;
    codes[worker].resize(rows * codec->bytes(kWidth));
    decoded[worker].resize(values.size());
    for (std::size_t row = 0; row < rows; ++row) {
      const auto code = std::span(codes[worker]).subspan(row * codec->bytes(kWidth), codec->bytes(kWidth));
      codec->encode(ConstElements(std::span<const float>(values).subspan(row * kWidth, kWidth)), {}, Elements(code));
      codec->decode(ConstElements(std::span<const std::byte>(code)), {},
                    Elements(std::span(decoded[worker]).subspan(row * kWidth, kWidth)));
    }
    CHECK(decoded[worker] != values);
    coded_lists.push_back({{of_worker[worker], ConstElements(std::span<const std::byte>(codes[worker]))}});
    lists.push_back({{of_worker[worker], ConstElements(std::span<const float>(decoded[worker]))}});
  }
  MemoryLedger ledger;
  TableRows::Options options = options_of(*adagrad, kWidth);
  TableRows plain(options, ledger);
  options.codec = codec.get();
  TableRows rows(options, ledger);
  for (std::uint64_t update = 1; update <= 3; ++update) {
    plain.update({.count = update, .lr = 0.1F}, lists, 1.0F / 3);
    rows.update({.count = update, .lr = 0.1F}, coded_lists, 1.0F / 3);
  }
  CHECK(read(rows, keys, kWidth) == read(plain, keys, kWidth));
}

TEST_CASE("workers' gradients are added up in their order, wherever lists are cut") {
  constexpr std::size_t kWidth = 3;
  const auto adagrad = rule("adagrad");
  const std::vector<std::uint64_t> keys = hashed_keys(300, 5);
  std::vector<std::vector<std::uint64_t>> of_worker(3);
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t worker = 0; worker < 3; ++worker)
      if ((i + worker) % 4 != 0) of_worker[worker].push_back(keys[i]);
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<RowGradients>> whole;
  std::vector<std::vector<RowGradients>> cut;
  for (std::size_t worker = 0; worker < 3; ++worker) {
    gradients.push_back(normal_values(of_worker[worker].size() * kWidth, worker));
    const std::span<const std::uint64_t> list = of_worker[worker];
    const ConstElements values(gradients[worker]);
    whole.push_back({{list, values}});
    const std::size_t at = 50 + 40 * worker;
    cut.push_back({{list.first(at), values.subspan(0, at * kWidth)},
                   {list.subspan(at, 0), values.subspan(0, 0)},
                   {list.subspan(at), values.subspan(at * kWidth, values.size() - at * kWidth)}});
  }
  MemoryLedger ledger;
  TableRows a(options_of(*adagrad, kWidth), ledger);
  TableRows b(options_of(*adagrad, kWidth), ledger);
  TableRows by_hand(options_of(*adagrad, kWidth), ledger);
  a.update({.count = 1, .lr = 0.1F}, whole, 1.0F / 3);
  b.update({.count = 1, .lr = 0.1F}, cut, 1.0F / 3);
  std::vector<float> mean(keys.size() * kWidth);
  for (std::size_t worker = 0; worker < 3; ++worker)
    for (std::size_t i = 0; i < of_worker[worker].size(); ++i) {
      const auto place = std::ranges::find(keys, of_worker[worker][i]) - keys.begin();
      for (std::size_t j = 0; j < kWidth; ++j)
        mean[static_cast<std::size_t>(place) * kWidth + j] += gradients[worker][i * kWidth + j];
    }
  for (float& value : mean) value *= 1.0F / 3;
  by_hand.update({.count = 1, .lr = 0.1F}, std::vector<std::vector<RowGradients>>{{{keys, mean}}}, 1);
  CHECK(read(a, keys, kWidth) == read(b, keys, kWidth));
  CHECK(read(a, keys, kWidth) == read(by_hand, keys, kWidth));
}

TEST_CASE("names and keys of rules are checked") {
  const auto refused = [](const std::string& text) { return error_of(ErrorKind::usage, [&] { rule(text); }); };
  CHECK_THAT(refused("lamb"), Contains("--table-optimizer") && Contains("rowwise-adagrad") && Contains("lamb"));
  CHECK_THAT(refused("sgd:eps=1"), Contains("eps"));
  CHECK_THAT(refused("adam:beta1=1"), Contains("--table-optimizer: beta1"));
  CHECK_THAT(refused("ftrl:l1=-1"), Contains("--table-optimizer: l1"));
}

TEST_CASE("a sweep takes the rows that were not updated for longest, and never more than the rules say") {
  const std::size_t group = GENERATE(0, 1, 4095);
  const std::uint64_t ttl = GENERATE(0, 3, 9);
  const std::size_t keep = GENERATE(0, 4096 * 2 + 1, 4096 * 9);
  const std::size_t most = GENERATE(0, 4096, 4096 * 9 + 1);
  CAPTURE(group, ttl, keep, most);
  const RowRules rules{.ttl = ttl, .keep = keep, .most = most, .sweep = 10};
  std::vector<RowAge> rows;
  for (std::uint32_t i = 0; i < 20; ++i)
    rows.push_back({.key = (i * 7) % 20, .count = i % 5, .last = (i * 13) % 10, .row = i});
  const std::vector<RowAge> before = rows;
  const std::size_t leaving = choose_leaving(rules, 10, group, rows);
  std::set<std::uint64_t> left;
  for (std::size_t i = 0; i < leaving; ++i) left.insert(rows[i].key);
  for (const RowAge& row : before) {
    std::size_t stay_longer = 0;
    for (const RowAge& other : before)
      stay_longer += other.last > row.last || (other.last == row.last && other.key > row.key) ? 1 : 0;
    const bool old = ttl > 0 && 10 - row.last >= ttl && stay_longer >= share_of_group(keep, group);
    const bool above = most > 0 && stay_longer >= share_of_group(most, group);
    CAPTURE(row.key, row.last);
    CHECK(left.contains(row.key) == (old || above));
  }
  std::size_t sum = 0;
  for (std::size_t each = 0; each < 4096; ++each) sum += share_of_group(keep, each);
  CHECK(sum == keep);
}

TEST_CASE("beyond the limit the rows that occurred least leave, the oldest first") {
  const RowRules rules{.most = 4096 * 3, .by_count = true};
  std::vector<RowAge> rows{{1, 5, 1, 0}, {2, 1, 9, 1}, {3, 1, 8, 2}, {4, 2, 2, 3}, {5, 9, 1, 4}};
  REQUIRE(choose_leaving(rules, 10, 7, rows) == 2);
  CHECK(rows[0].key == 3);
  CHECK(rows[1].key == 2);
}

TEST_CASE("a key gets its row at its Kth occurrence, counted in batches of all workers") {
  MemoryLedger ledger;
  const auto sgd = rule("sgd");
  TableRows::Options options = options_of(*sgd, 2);
  const bool zero = GENERATE(false, true);
  options.rules = {.admit = 4, .zero = zero, .ttl = 3, .sweep = 1};
  TableRows rows(options, ledger);
  const std::vector<std::uint64_t> keys{11, 12};
  const std::vector<float> gradients{1, 1, 2, 2};
  const auto update = [&](std::uint64_t count, const std::vector<std::uint32_t>& a,
                          const std::vector<std::uint32_t>& b) {
    const std::vector<std::vector<RowGradients>> workers{{{keys, gradients, a}}, {{keys, gradients, b}}};
    rows.update({.count = count, .lr = 1}, workers, 1);
  };
  std::vector<float> initial(2);
  initial_row(options.init, options.seed, 0, 12, initial);
  if (zero) initial = {0, 0};
  update(1, {1, 1}, {2, 1});  // 3 and 2 occurrences
  CHECK(rows.size() == 0);
  CHECK(read(rows, std::vector<std::uint64_t>{12}, 2) == initial);
  update(2, {1, 1}, {1, 1});  // 5 and 4
  CHECK(rows.size() == 2);
  const std::vector<std::uint64_t> other{13};
  const std::vector<float> one{1, 1};
  for (std::uint64_t count = 3; count <= 5; ++count) {
    const std::vector<std::vector<RowGradients>> workers{{{other, one, {}}}};
    rows.update({.count = count, .lr = 1}, workers, 1);
  }
  CHECK(rows.size() == 0);    // both have left, and 13 is at 3
  update(6, {1, 3}, {1, 1});  // 11 begins to be counted anew
  CHECK(rows.size() == 1);
}

TEST_CASE("rows are listed page by page, at the cost of the pages") {
  MemoryLedger ledger;
  const auto sgd = rule("sgd");
  TableRows rows(options_of(*sgd, 1), ledger);
  const std::vector<std::uint64_t> keys = hashed_keys(20000, 3);
  const std::vector<float> gradients(keys.size(), 1);
  const auto update = [&](std::uint64_t count, std::size_t begin, std::size_t end) {
    const auto part = std::span(keys).subspan(begin, end - begin);
    rows.update({.count = count, .lr = 1},
                std::vector<std::vector<RowGradients>>{{{part, std::span(gradients).first(part.size())}}}, 1);
  };
  const auto listed = [&](std::uint64_t last, std::size_t most) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t first = 0;;) {
      const std::vector<std::uint64_t> page = rows.list(first, last, most);
      all.insert(all.end(), page.begin(), page.end());
      if (page.size() < most) return all;
      first = page.back() + 1;
    }
  };
  CHECK(listed(~std::uint64_t{0}, 7).empty());
  update(1, 5000, keys.size());
  const std::uint64_t index = ledger.current_bytes(Category::index);
  CHECK(rows.list(keys[6000], keys[6001], 9) == std::vector<std::uint64_t>{keys[6000], keys[6001]});
  CHECK(ledger.current_bytes(Category::index) == index + 4 * 15000);
  update(2, 0, 5000);  // between two pages
  const auto timed = [&](std::size_t most) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(listed(~std::uint64_t{0}, most) == keys);
    return std::chrono::steady_clock::now() - begin;
  };
  const auto whole = timed(keys.size() + 1);
  CHECK(timed(1) < 200 * whole);  // with a scan for each page it takes thousands of times as long
  CHECK(timed(7) < 200 * whole);
  CHECK(listed(keys[99], 10) == std::vector<std::uint64_t>(keys.begin(), keys.begin() + 100));
  CHECK(rows.list(keys.back() + 1, ~std::uint64_t{0}, 1).empty());
  MemoryLedger other;
  TableRows fresh(options_of(*sgd, 1), other);
  fresh.update({.count = 1, .lr = 1}, std::vector<std::vector<RowGradients>>{{{keys, gradients}}}, 1);
  CHECK(ledger.current_bytes(Category::index) == other.current_bytes(Category::index));  // the order is gone
}

TEST_CASE("occurrences beyond the largest number are the largest number") {
  constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
  MemoryLedger ledger;
  const auto sgd = rule("sgd");
  TableRows::Options options = options_of(*sgd, 1);
  const bool admits = GENERATE(false, true);
  options.rules = {.admit = admits ? kMost : 1, .most = 4096, .by_count = true, .sweep = 2};
  TableRows rows(options, ledger);
  const std::vector<std::uint64_t> keys{11, 12};
  const std::vector<float> gradients{1, 1};
  const std::vector<std::uint32_t> few{admits ? kMost - 1 : 2, 1};
  const std::vector<std::uint32_t> many{kMost, 1};
  rows.update({.count = 1, .lr = 1}, std::vector<std::vector<RowGradients>>{{{keys, gradients, few}}}, 1);
  rows.update({.count = 2, .lr = 1},
              std::vector<std::vector<RowGradients>>{{{keys, gradients, many}}, {{keys, gradients, many}}}, 1);
  CHECK(rows.size() == 1);  // the other one has left, or was never admitted
  CHECK(rows.list(0, 99, 9) == std::vector<std::uint64_t>{11});
  CHECK(rows.records().header(rows.in_order().at(0)).updates == kMost);
}

TEST_CASE("a step with a learning rate of 0 leaves the values of rows") {
  for (const char* text : {"sgd", "adagrad", "rowwise-adagrad", "adam", "ftrl:l1=0.01"}) {
    CAPTURE(text);
    MemoryLedger ledger;
    const auto own = rule(text);
    TableRows rows(options_of(*own, 3), ledger);
    const std::vector<std::uint64_t> keys{11, 12};
    const std::vector<float> gradients{1, 0, -1, 0, 2, 0};
    const auto update = [&](std::uint64_t count, float lr) {
      rows.update({.count = count, .lr = lr}, std::vector<std::vector<RowGradients>>{{{keys, gradients}}}, 1);
    };
    update(1, 0.5F);
    const std::vector<float> before = read(rows, keys, 3);
    update(2, 0);
    CHECK(read(rows, keys, 3) == before);
    update(3, 0.5F);
    for (const float value : read(rows, keys, 3)) CHECK(std::isfinite(value));
  }
}

TEST_CASE("rows that leave are as if they had never been there, and their memory is used again") {
  MemoryLedger ledger;
  const auto adagrad = rule("adagrad");
  const TableRows::Options plain = options_of(*adagrad, 2);
  TableRows::Options aged = plain;
  aged.rules = {.ttl = 2, .sweep = 2};
  TableRows rows(aged, ledger);
  const auto update = [](TableRows& table, std::uint64_t count, std::uint64_t key) {
    const std::vector<std::uint64_t> keys{key};
    const std::vector<float> gradients{1, -1};
    const std::vector<std::vector<RowGradients>> workers{{{keys, gradients}}};
    table.update({.count = count, .lr = 0.1F}, workers, 1);
  };
  const auto row = [](const TableRows& table, std::uint64_t key) {
    return read(table, std::vector<std::uint64_t>{key}, 2);
  };
  const std::vector<float> initial = row(rows, 11);
  const std::uint64_t index = ledger.current_bytes(Category::index);
  update(rows, 1, 11);
  const std::uint64_t one = ledger.current_bytes(Category::index);
  update(rows, 2, 12);
  CHECK(rows.size() == 2);
  CHECK(row(rows, 11) != initial);
  update(rows, 3, 12);
  update(rows, 4, 12);
  CHECK(rows.size() == 1);
  CHECK(row(rows, 11) == initial);
  CHECK(rows.list(0, 99, 9) == std::vector<std::uint64_t>{12});
  CHECK(ledger.current_bytes(Category::index) == one);
  const std::vector<float> kept = row(rows, 12);
  update(rows, 5, 11);
  CHECK(row(rows, 12) == kept);
  TableRows fresh(plain, ledger);
  update(fresh, 5, 11);
  CHECK(row(rows, 11) == row(fresh, 11));  // without the state of its first life
  CHECK(index < one);
}
