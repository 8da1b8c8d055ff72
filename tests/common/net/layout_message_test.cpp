#include <cstring>
#include <random>

#include <catch2/catch.hpp>

#include <psring/common/net/frame.h>
#include <psring/common/net/layout_message.h>
#include <psring/tests/support/values.h>

using namespace psring;
using namespace psring::net;
using test::error_of;

namespace {

LayoutMessage sample() {
  std::vector<UnitSpec> units(3);
  units[0] = {"root",
              {{{"wte", {31, 16}, {Init::Kind::normal, 0.02F}}, 7}, {{"ln", {16}, {Init::Kind::constant, 1}}, 9}}};
  units[1] = {"", {}, false};
  units[2] = {std::string(256, 'x'), {{{"scalar", {}, {Init::Kind::uniform, 0.5F}}, 1}, {{"none", {0, 5}, {}}, 2}}};
  Layout layout = make_layout(std::move(units), 3);
  layout.piece_elements = 65536;
  layout.parameter_type = DType::bf16;
  layout.pushes = 3;
  return {std::move(layout), ~std::uint64_t{0}, true};
}

/// Builds messages that `encode` would not.
struct Raw {
  std::vector<std::byte> bytes;
  Raw& number(std::uint64_t value) {
    const auto* at = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), at, at + sizeof value);
    return *this;
  }
  Raw& head(std::uint64_t owners, std::uint64_t units, std::uint64_t piece = kPieceElements, DType type = DType::f32,
            std::uint64_t pushes = 1) {
    const auto number_of = static_cast<std::uint64_t>(type);
    return number(1).number(0).number(owners).number(piece).number(number_of).number(0).number(pushes).number(units);
  }
  Raw& tensor(const std::vector<std::uint64_t>& shape, std::uint64_t kind = 0, std::uint64_t id = 0) {
    number(0).number(shape.size());
    for (const std::uint64_t extent : shape) number(extent);
    number(kind);
    bytes.resize(bytes.size() + sizeof(float));
    return number(id);
  }
};

std::string refusal(const Raw& raw) {
  return error_of(ErrorKind::protocol, [&] { decode_layout(raw.bytes); });
}

}  // namespace

TEST_CASE("a layout comes out as it went in") {
  const LayoutMessage message = sample();
  const LayoutMessage read = decode_layout(encode(message));
  CHECK(read.seed == message.seed);
  CHECK(read.initial_by_worker);
  CHECK(read.layout.owners == 3);
  CHECK(read.layout.piece_elements == 65536);
  CHECK(read.layout.parameter_type == DType::bf16);
  CHECK(read.layout.gradient_type == DType::f32);
  CHECK(read.layout.pushes == 3);
  REQUIRE(read.layout.units.size() == message.layout.units.size());
  for (std::size_t u = 0; u < read.layout.units.size(); ++u) {
    const UnitLayout& got = read.layout.units[u];
    const UnitLayout& put = message.layout.units[u];
    CHECK(got.name == put.name);
    CHECK(got.elements == put.elements);
    CHECK(got.trained == put.trained);
    REQUIRE(got.tensors.size() == put.tensors.size());
    for (std::size_t t = 0; t < got.tensors.size(); ++t) {
      CHECK(got.tensors[t].spec.name == put.tensors[t].spec.name);
      CHECK(got.tensors[t].spec.shape == put.tensors[t].spec.shape);
      CHECK(got.tensors[t].spec.init.kind == put.tensors[t].spec.init.kind);
      CHECK(got.tensors[t].spec.init.a == put.tensors[t].spec.init.a);
      CHECK(got.tensors[t].id == put.tensors[t].id);
      CHECK(got.tensors[t].offset == put.tensors[t].offset);
    }
  }
  CHECK(encode(read) == encode(message));
}

TEST_CASE("weights of the owners come out as they went in") {
  LayoutMessage message = sample();
  const std::size_t even_bytes = encode(message).size();
  message.layout.weights = CutWeights(std::vector<std::uint32_t>{1, UINT32_MAX - 3, 2});
  const std::vector<std::byte> bytes = encode(message);
  CHECK(bytes.size() == even_bytes + 3 * sizeof(std::uint64_t));
  const LayoutMessage read = decode_layout(bytes);
  CHECK((read.layout.weights == message.layout.weights));
  CHECK(encode(read) == bytes);
  CHECK_THAT(refusal(Raw().head(2, 0).number(1)), Catch::Contains("8 bytes too many"));
  CHECK_THAT(refusal(Raw().head(2, 0).number(1).number(0)), Catch::Contains("a weight of 0"));
  CHECK_THAT(refusal(Raw().head(2, 0).number(1).number(UINT32_MAX)), Catch::Contains("4294967296 in all"));
  CHECK_THAT(refusal(Raw().head(2, 0).number(1).number(std::uint64_t{1} << 32)), Catch::Contains("at most"));
  CHECK_THAT(refusal(Raw().head(2, 0).number(1).number(1).number(1)), Catch::Contains("24 bytes too many"));
}

TEST_CASE("what a mesh says of a tensor comes out as it went in") {
  constexpr std::uint64_t kSlice = 8;
  LayoutMessage message = sample();
  const std::size_t plain_bytes = encode(message).size();
  TensorLayout& cut = message.layout.units[0].tensors[0];
  cut.spec.slice = TensorSlice{{31, 40}, 1, {{2, 10}, {20, 28}}};
  message.layout.units[0].tensors[1].counted = false;
  const std::vector<std::byte> bytes = encode(message);
  CHECK(bytes.size() == plain_bytes + 8 * sizeof(std::uint64_t));
  const LayoutMessage read = decode_layout(bytes);
  const std::vector<TensorLayout>& tensors = read.layout.units[0].tensors;
  REQUIRE(tensors[0].spec.slice.has_value());
  CHECK(tensors[0].spec.slice->whole_shape == std::vector<std::size_t>{31, 40});
  CHECK(tensors[0].spec.slice->axis == 1);
  CHECK((tensors[0].spec.slice->ranges == std::vector<Range>{{2, 10}, {20, 28}}));
  CHECK(tensors[0].counted);
  CHECK_FALSE(tensors[1].spec.slice.has_value());
  CHECK_FALSE(tensors[1].counted);
  CHECK(encode(read) == bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    error_of(ErrorKind::protocol, [&] { decode_layout(std::span(bytes).first(size)); });

  const auto slice = [](std::uint64_t whole, std::uint64_t axis, const std::vector<Range>& ranges) {
    Raw raw;
    raw.head(1, 1).number(0).number(1).number(1).tensor({4}, kSlice).number(whole).number(axis).number(ranges.size());
    for (const Range& range : ranges) raw.number(range.begin).number(range.end);
    return raw;
  };
  CHECK_NOTHROW(decode_layout(slice(9, 0, {{0, 3}, {5, 6}}).bytes));
  CHECK_THAT(refusal(slice(9, 1, {{0, 4}})), Catch::Contains("along axis 1"));
  CHECK_THAT(refusal(slice(9, 0, {{0, 3}})), Catch::Contains("another shape"));
  CHECK_THAT(refusal(slice(9, 0, {{4, 6}, {0, 2}})), Catch::Contains("[0, 2) after 6"));
  CHECK_THAT(refusal(slice(9, 0, {{4, 2}})), Catch::Contains("[4, 2) after 0"));
  CHECK_THAT(refusal(slice(9, 0, {{6, 10}})), Catch::Contains("at most 9"));
}

TEST_CASE("a layout that is cut short or goes on is refused") {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    error_of(ErrorKind::protocol, [&] { decode_layout(std::span(bytes).first(size)); });
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  CHECK_THAT(error_of(ErrorKind::protocol, [&] { decode_layout(longer); }), Catch::Contains("1 bytes too many"));
}

TEST_CASE("flipped bits give another layout or a refusal, never more") {
  const std::vector<std::byte> bytes = encode(sample());
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::vector<std::byte> flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    try {
      const LayoutMessage read = decode_layout(flipped);
      CHECK((encode(read) == flipped));  // every bit means something
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::protocol);
      ++refused;
    }
  }
  CHECK(refused > bytes.size());
}

TEST_CASE("random bytes are refused") {
  std::mt19937_64 random(5);
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::byte> bytes(random() % 300);
    for (std::byte& b : bytes) b = random() % 3 == 0 ? static_cast<std::byte>(random()) : std::byte{0};
    try {
      decode_layout(bytes);
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::protocol);
    }
  }
}

TEST_CASE("claims beyond the bounds are refused before anything is allocated for them") {
  const std::uint64_t tera = std::uint64_t{1} << 40;
  CHECK_THAT(refusal(Raw().head(1, tera)), Catch::Contains("at most 1048576"));
  CHECK_THAT(refusal(Raw().head(0, 0)), Catch::Contains("no owners"));
  CHECK_THAT(refusal(Raw().head(1, 0, 256)), Catch::Contains("pieces of 256 elements"));
  CHECK_THAT(refusal(Raw().head(1, 0, kLeastPieceElements + 1)), Catch::Contains("pieces of 16385 elements"));
  CHECK_THAT(refusal(Raw().head(1, 0, kPieceElements + 256)), Catch::Contains("at most 262144"));
  CHECK_THAT(refusal(Raw().head(1, 0, kPieceElements, DType::i32)), Catch::Contains("type i32"));
  CHECK_THAT(refusal(Raw().head(1, 0, kPieceElements, DType::f32, 0)), Catch::Contains("no pushes"));
  CHECK_THAT(refusal(Raw().head(1, 0, kPieceElements, DType::f32, tera)), Catch::Contains("at most 65536"));
  CHECK_THAT(refusal(Raw().head(tera, 0)), Catch::Contains("at most 65536"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(tera)), Catch::Contains("at most 256"));       // a name
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(2)), Catch::Contains("at most 1"));  // trained
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(tera)),
             Catch::Contains("at most 1048576"));  // tensors
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).number(0).number(tera)),
             Catch::Contains("at most 8"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).tensor({tera, tera})),
             Catch::Contains("too large"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).tensor({UINT64_MAX})), Catch::Contains("at most"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).tensor({1}, 3)), Catch::Contains("kind 3"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).tensor({1}, 15)), Catch::Contains("at most 14"));
  CHECK_THAT(refusal(Raw().head(1, 1).number(0).number(1).number(1).tensor({1}, 0, tera)),
             Catch::Contains("at most 1048576"));
  Raw many;
  many.head(1, 1).number(0).number(1).number(300);
  for (int i = 0; i < 300; ++i) many.tensor({tera});
  CHECK_THAT(refusal(many), Catch::Contains("elements"));
  Raw huge;
  huge.bytes.resize(kMaxPayloadBytes + 1);
  CHECK_THAT(refusal(huge), Catch::Contains("bytes"));
  CHECK_THAT(refusal(Raw().number(1).number(4).number(1).number(0)), Catch::Contains("at most 3"));  // flags
}

TEST_CASE("the first difference of two layouts is named") {
  const LayoutMessage expected = sample();
  const auto said = [&](auto&& change) {
    LayoutMessage other = sample();
    change(other);
    return difference(other, expected);
  };
  CHECK(said([](LayoutMessage& m) {
          m.layout.units[0].tensors[0].spec.shape = {30, 16};
        }) == "unit 0 'root' tensor 'wte' is [30, 16], not [31, 16]");
  CHECK(said([](LayoutMessage& m) { m.layout.units[0].tensors[1].spec.name = "norm"; }) ==
        "unit 0 'root' tensor 'ln' is named norm, not ln");
  CHECK(said([](LayoutMessage& m) { m.layout.units[0].tensors.pop_back(); }) == "unit 0 'root' has tensors: 1, not 2");
  CHECK(said([](LayoutMessage& m) { m.layout.units[1].trained = true; }) == "unit 1 '' is trained, not frozen");
  CHECK(said([](LayoutMessage& m) { m.layout.units.pop_back(); }) == "units: 2, not 3");
  CHECK(said([](LayoutMessage& m) { m.layout.parameter_type = DType::f32; }) == "parameters of type f32, not bf16");
  CHECK(said([](LayoutMessage& m) { m.seed = 7; }) == fmt::format("seed 7, not {}", ~std::uint64_t{0}));
  CHECK(said([](LayoutMessage& m) { m.layout.units[0].tensors[0].spec.init.a = 1; }) ==
        "unit 0 'root' tensor 'wte' begins with other values");
  const auto of_table = [](auto&& change) {
    LayoutMessage tables = sample();
    tables.layout.tables = {{.name = "words", .width = 16, .init = {}, .most_keys = 32, .most_bags = 8}};
    LayoutMessage other = tables;
    change(other.layout.tables[0]);
    return difference(other, tables);
  };
  CHECK(of_table([](TableLayout& t) { t.name = "tags"; }) == "table 0 'words' is named tags, not words");
  CHECK(of_table([](TableLayout& t) { t.width = 8; }) == "table 0 'words' has rows of width 8, not 16");
  CHECK(of_table([](TableLayout& t) { t.type = DType::bf16; }) == "table 0 'words' has rows of type bf16, not f32");
  CHECK(of_table([](TableLayout& t) { t.most_keys = 4; }) ==
        "table 0 'words' has in a batch, at most, keys: 4, not 32");
  CHECK(of_table([](TableLayout& t) { t.lookahead = 1; }) == "table 0 'words' is pulled ahead by steps: 1, not 0");
  CHECK(of_table([](TableLayout& t) { t.init.a = 0.5; }) == "table 0 'words' begins with other values");
  CHECK(of_table([](TableLayout& t) { t.pieces = 2; }) == "table 0 'words' is cut into pieces: 2, not 1");
  CHECK_FALSE(said([](LayoutMessage& m) {
                m.layout.weights = CutWeights(std::vector<std::uint32_t>{1, 2, 3});
              }).empty());
}
