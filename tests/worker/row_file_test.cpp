#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/optim/rows/row_hash.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/support/values.h>
#include <psring/worker/tables/row_export.h>
#include <psring/worker/tables/saved_tables.h>

namespace psring::worker {
namespace {

constexpr std::size_t kWidth = 3;

/// Writes a file with a row for each of these hashed keys, whose values are the key's place, and with removed keys.
void write(const std::string& path, const std::vector<std::uint64_t>& hashed,
           const std::vector<std::uint64_t>& removed = {}, const std::map<std::string, std::string>& metadata = {}) {
  const std::vector<StoredTensor> tensors{{.name = "ads.keys", .dtype = "U64", .shape = {hashed.size()}},
                                          {.name = "ads.values", .shape = {hashed.size(), kWidth}},
                                          {.name = "ads.removed", .dtype = "U64", .shape = {removed.size()}}};
  TensorWriter writer(path, tensors, metadata);
  const auto append = [&](const std::vector<std::uint64_t>& keys) {
    for (const std::uint64_t h : keys) {
      const std::uint64_t key = optim::unmix64(h);
      writer.append_bytes(std::as_bytes(std::span(&key, 1)));
    }
  };
  append(hashed);
  for (std::size_t i = 0; i < hashed.size(); ++i) writer.append(std::vector<float>(kWidth, static_cast<float>(i)));
  append(removed);
  writer.commit();
}

std::vector<std::uint64_t> spread(std::size_t count) {
  std::vector<std::uint64_t> hashed;
  for (std::uint64_t i = 0; i < count; ++i) hashed.push_back(optim::mix64(i + 1) & ~std::uint64_t{1});
  std::ranges::sort(hashed);
  return hashed;
}

TEST_CASE("every key of a file is found, and no other") {
  const test::TemporaryFolder folder;
  std::vector<std::vector<std::uint64_t>> lists;
  for (const std::size_t count : {0, 1, 63, 64, 65, 66, 129, 5000}) lists.push_back(spread(count));
  std::vector<std::uint64_t> near_zero;
  for (std::uint64_t i = 0; i < 1000; ++i) near_zero.push_back(2 * i);
  lists.push_back(near_zero);
  near_zero.push_back(~std::uint64_t{1});  // one at the other end: every guess in proportion is wrong
  lists.push_back(near_zero);
  std::vector<std::uint64_t> near_end;
  for (std::uint64_t i = 0; i < 1000; ++i) near_end.push_back(~std::uint64_t{0} - 1 - 2 * (999 - i));
  lists.push_back(near_end);
  for (std::size_t list = 0; list < lists.size(); ++list) {
    const std::string path = folder.file(std::to_string(list) + ".safetensors");
    write(path, lists[list]);
    const RowFile file(path);
    const RowFile::Table& table = file.tables().at(0);
    std::vector<std::byte> row(row_bytes(table.type, table.width));
    std::vector<float> values(kWidth);
    for (std::size_t i = 0; i < lists[list].size(); ++i) {
      REQUIRE(file.look_up(table, lists[list][i], row) == RowFile::Found::row);
      decode_row(table.type, row, values);
      REQUIRE(values == std::vector<float>(kWidth, static_cast<float>(i)));
      REQUIRE(file.look_up(table, lists[list][i] + 1, row) == RowFile::Found::nothing);  // all are even
    }
    CHECK(file.look_up(table, 1, row) == RowFile::Found::nothing);
    CHECK(file.look_up(table, ~std::uint64_t{0}, row) == RowFile::Found::nothing);
  }
}

TEST_CASE("the newest export that has a key decides") {
  const test::TemporaryFolder folder;
  const auto metadata = [](const char* step, const char* id, const char* follows) {
    std::map<std::string, std::string> texts{{kExportStep, step}, {kExportId, id}};
    if (*follows != '\0') texts[kExportFollows] = follows;
    return texts;
  };
  write(folder.file("base-00000001.safetensors"), {10, 20, 30}, {}, metadata("1", "a", ""));
  write(folder.file("delta-00000002.safetensors"), {15, 20}, {10, 30}, metadata("2", "b", "a"));
  write(folder.file("delta-00000003.safetensors"), {10}, {15}, metadata("3", "c", "b"));
  const SavedTables rows(folder.path());
  CHECK(rows.step() == 3);
  CHECK(rows.tables() == std::vector<std::string>{"ads"});
  CHECK(rows.count("ads") == 2);
  std::vector<float> values(kWidth);
  const auto value = [&](std::uint64_t hashed) {
    return rows.find("ads", optim::unmix64(hashed), values) ? std::optional(values[0]) : std::nullopt;
  };
  CHECK(value(10) == 0.0F);  // back in the last delta
  CHECK(value(20) == 1.0F);
  CHECK(!value(15));
  CHECK(!value(30));
  CHECK(!value(40));
  CHECK(test::error_of(ErrorKind::usage, [&] { rows.find("clicks", 1, values); }).find("only ads") !=
        std::string::npos);
}

TEST_CASE("an export's checksum has its tables in the order of their names, whatever these are") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> names{"a", "a b", "a-b", "a.b", "ab"};
  const std::vector<float> values(kWidth, 2.5F);
  const std::uint64_t key = 17;
  std::vector<StoredTensor> tensors;
  ExportChecksum checksum(1);
  for (const std::string& name : names) {
    tensors.push_back({.name = name + kKeysOfRows, .dtype = "U64", .shape = {1}});
    tensors.push_back({.name = name + kValuesOfRows, .shape = {1, kWidth}});
    checksum.begin_table(name);
    checksum.add_row(optim::mix64(key), std::as_bytes(std::span(values)));
  }
  TensorWriter writer(folder.file("base-00000001.safetensors"), tensors,
                      {{kExportStep, "1"}, {kExportId, checksum.text()}});
  for (std::size_t i = 0; i < names.size(); ++i) {
    writer.append_bytes(std::as_bytes(std::span(&key, 1)));
    writer.append(values);
  }
  writer.commit();
  const SavedTables rows(folder.path());
  CHECK(rows.tables() == names);
  CHECK_NOTHROW(rows.verify());
}

TEST_CASE("damaged orders are told") {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  write(path, {10, 30, 20});
  CHECK(test::error_of(ErrorKind::data, [&] { SavedTables(path).count("ads"); }).find("out of order") !=
        std::string::npos);
  write(path, {10, 20}, {20});
  CHECK(test::error_of(ErrorKind::data, [&] { SavedTables(path).count("ads"); }).find("is removed") !=
        std::string::npos);
}

TEST_CASE("rows are rounded to their type") {
  const std::vector<float> values{0.1F, -2.5F, 0.0F, 1e-3F, 2.49F};
  for (const RowType type : {RowType::f32, RowType::bf16, RowType::int8}) {
    std::vector<std::byte> row(row_bytes(type, values.size()));
    std::vector<float> back(values.size());
    encode_row(type, values, row);
    decode_row(type, row, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float bound = type == RowType::f32    ? 0.0F
                          : type == RowType::bf16 ? std::abs(values[i]) / 256
                                                  : 2.5F / 127 * 0.5001F;
      CHECK(std::abs(back[i] - values[i]) <= bound);
    }
  }
  std::vector<std::byte> row(row_bytes(RowType::int8, 2));
  std::vector<float> back(2, 1);
  encode_row(RowType::int8, std::vector<float>(2, 0), row);
  decode_row(RowType::int8, row, back);
  CHECK(back == std::vector<float>(2, 0));
}

}  // namespace
}  // namespace psring::worker
