// Rows in checkpoints: any cut into owners is read by any other, and what is damaged or different is refused.
#include <algorithm>
#include <cstring>

#include <catch2/catch.hpp>

#include <psring/common/base/text/error.h>
#include <psring/optim/checkpoint/folder.h>
#include <psring/optim/checkpoint/saved_rows.h>
#include <psring/optim/rows/row_hash.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::optim;
using Catch::Contains;
using test::error_of;

namespace {

constexpr std::size_t kWidth = 3;
constexpr std::size_t kKeys = 140000;  // more keys than a block holds

TableRows::Options options_of(const RowRule& rule, std::size_t width = kWidth) {
  return {
      .width = width, .init = {Init::Kind::uniform, 1}, .seed = 7, .rule = &rule, .most_bytes = std::size_t{1} << 30};
}

TableLayout layout_of(std::size_t width = kWidth) { return {.name = "ads", .width = width}; }

/// Hashed keys, ascending; one in seven is far away from the others, so that many groups of buckets are empty.
std::vector<std::uint64_t> keys_of(Range buckets) {
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::uint64_t h = mix64(i) >> (i % 7 == 0 ? 0 : 6);
    if (bucket_of(h) >= buckets.begin && bucket_of(h) < buckets.end) keys.push_back(h);
  }
  std::ranges::sort(keys);
  return keys;
}

void train(TableRows& rows, const std::vector<std::uint64_t>& keys, std::uint64_t count) {
  if (keys.empty()) return;
  const std::vector<float> gradients(keys.size() * kWidth, 0.5F);
  const std::vector<std::vector<RowGradients>> workers{{{keys, ConstElements(std::span(gradients))}}};
  rows.update({.count = count, .lr = 0.1F}, workers, 1);
}

std::filesystem::path save(const test::TemporaryFolder& folder, const RowRule& rule, std::size_t owners) {
  const CheckpointFolder checkpoints(folder.path(), "run");
  checkpoints.create();
  MemoryLedger ledger;
  const TableLayout layout = layout_of();
  for (std::size_t owner = 0; owner < owners; ++owner) {
    TableRows rows(options_of(rule), ledger);
    const Range buckets = table_buckets(owners, owner);
    std::vector<std::uint64_t> keys = keys_of(buckets);
    train(rows, keys, 1);
    std::erase_if(keys, [](std::uint64_t key) { return key % 2 == 0; });
    train(rows, keys, 2);
    const TablePart part{&layout, buckets, &rows};
    write_shard(checkpoints.aside(2) / fmt::format("server-{}{}", owner, kShardSuffix), 2, {}, std::span(&part, 1));
  }
  write_manifest(checkpoints.aside(2), {.run = "run", .step = 2, .tensors = {saved_table(layout, rule)}});
  checkpoints.commit(2);
  return folder.file("step-00000002");
}

void damage(const std::string& file, std::size_t offset) {
  std::string bytes = test::read_file(file);
  bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
  test::write_file(file, bytes);
}

}  // namespace

TEST_CASE("rows that some owners saved, any other number of them reads, record by record") {
  const auto name = GENERATE(values<std::string>({"sgd", "rowwise-adagrad", "adam"}));
  const std::size_t saved_by = GENERATE(1, 3);
  const auto rule = make_row_rule(Spec::parse("--table-optimizer", name));
  const test::TemporaryFolder folder;
  const Checkpoint saved(save(folder, *rule, saved_by));
  saved.verify();
  MemoryLedger ledger;
  TableRows whole(options_of(*rule), ledger);
  const std::vector<std::uint64_t> keys = keys_of({0, kBuckets});
  train(whole, keys, 1);
  std::vector<std::uint64_t> odd = keys;
  std::erase_if(odd, [](std::uint64_t key) { return key % 2 == 0; });
  train(whole, odd, 2);
  const std::vector<RowAge> ages = saved_ages(saved, "ads");
  CHECK(std::ranges::equal(ages, keys, {}, &RowAge::key));
  CHECK(std::ranges::all_of(ages,
                            [](const RowAge& age) { return age.count == age.last && age.last == 1 + age.key % 2; }));
  CHECK(saved.manifest().tensors[0].rows == keys.size());
  const std::size_t bytes = sizeof(RecordHeader) + (kWidth + rule->state_floats(kWidth)) * sizeof(float);
  const std::vector<std::uint32_t> order = whole.in_order();
  for (const std::size_t owners : {1, 2, 5}) {
    CAPTURE(name, saved_by, owners);
    std::size_t next = 0;
    for (std::size_t owner = 0; owner < owners; ++owner) {
      TableRows rows(options_of(*rule), ledger);
      read_rows(saved, "ads", table_buckets(owners, owner), rows);
      bool equal = true;
      for (const std::uint32_t row : rows.in_order())
        equal = equal && std::memcmp(rows.records().record(row), whole.records().record(order.at(next++)), bytes) == 0;
      CHECK(equal);
    }
    CHECK(next == keys.size());
  }
}

TEST_CASE("rows of another width or rule, and damaged ones, are refused by name") {
  const auto rule = make_row_rule(Spec::parse("--table-optimizer", "adagrad"));
  const auto other = make_row_rule(Spec::parse("--table-optimizer", "rowwise-adagrad"));
  const test::TemporaryFolder folder;
  const std::filesystem::path path = save(folder, *rule, 2);
  const Checkpoint saved(path);
  CHECK(saved.has(saved_table(layout_of(), *rule)));
  CHECK_FALSE(saved.has(saved_table(layout_of(4), *rule)));
  CHECK_FALSE(saved.has(saved_table({.name = "users", .width = kWidth}, *rule)));
  MemoryLedger ledger;
  const auto error = [&](const RowRule& of, std::size_t width, const std::string& table) {
    TableRows rows(options_of(of, width), ledger);
    return error_of(ErrorKind::data, [&] { read_rows(saved, table, {0, kBuckets}, rows); });
  };
  CHECK_THAT(error(*rule, 4, "ads"), Contains("server-0.shard") && Contains("3 words a row, 4 expected"));
  CHECK_THAT(error(*other, kWidth, "ads"), Contains("server-0.shard") && Contains("3 words a row, 1 expected"));
  CHECK_THAT(error(*rule, kWidth, "users"), Contains("has no keys of 'users'"));
  const std::string shard = (path / "server-1.shard").string();
  const std::size_t data = saved_ages(saved, "ads").size();
  for (const std::size_t offset : {std::size_t{0}, data}) {  // a key, and something behind
    damage(shard, offset);
    const std::string text = error_of(ErrorKind::data, [&] { Checkpoint(path).verify(); });
    CHECK_THAT(text, Contains(shard) && Contains("wrong checksum"));
    damage(shard, offset);
  }
  std::filesystem::remove(shard);
  CHECK_THAT(error_of(ErrorKind::data, [&] { Checkpoint(path).verify(); }), Contains(shard));
}

TEST_CASE("a table without rows costs little") {
  const auto rule = make_row_rule(Spec::parse("--table-optimizer", "adam"));
  const test::TemporaryFolder folder;
  MemoryLedger ledger;
  const TableLayout layout = layout_of();
  const TableRows rows(options_of(*rule), ledger);
  const TablePart part{&layout, {0, kBuckets}, &rows};
  write_shard(folder.file("empty.shard"), 0, {}, std::span(&part, 1));
  CHECK(ShardFile(folder.file("empty.shard")).size_bytes() < 1024);
}
