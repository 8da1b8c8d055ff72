#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/layout.h>
#include <psring/common/base/patience.h>
#include <psring/common/base/pieces.h>
#include <psring/common/base/rng.h>
#include <psring/common/base/system/extension.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/common/base/text/spec.h>

using namespace psring;

TEST_CASE("Philox gives the published known answers") {
  // Random123's kat_vectors: counter 0, key 0.
  const CounterRng zero({.seed = 0, .purpose = static_cast<Purpose>(0)});
  CHECK(zero.block(0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
}

TEST_CASE("uniform and normal numbers have their moments") {
  const CounterRng rng({.seed = 3});
  double uniform = 0;
  double normal = 0;
  double square = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const float u = rng.uniform(i);
    REQUIRE((u >= 0 && u < 1));
    uniform += u;
    const double x = rng.normal(i);
    normal += x;
    square += x * x;
  }
  CHECK(uniform / n == Approx(0.5).margin(0.003));
  CHECK(normal / n == Approx(0).margin(0.01));
  CHECK(square / n == Approx(1).margin(0.02));
}

TEST_CASE("a partition covers the buffer, on cuts") {
  for (const std::size_t owners : {1, 2, 3, 5}) {
    const std::size_t n = Partition::padded(100000, owners);
    const Partition p(n, owners);
    CHECK(n < 100000 + kCut * owners);
    std::size_t at = 0;
    for (std::size_t i = 0; i < owners; ++i) {
      CHECK(p.range(i).begin == at);
      CHECK(at % kCut == 0);
      at = p.range(i).end;
    }
    CHECK(at == n);
  }
}

TEST_CASE("weights cut a buffer in proportion, on cuts, and leave nobody without a range") {
  const std::vector<std::vector<std::uint32_t>> lists{
      {1, 1, 1}, {6, 6, 1, 1, 1, 1}, {1, 4000000000U}, {5}, {63, 2, 2, 2, 2, 2}};
  for (const std::vector<std::uint32_t>& list : lists)
    for (const std::size_t blocks : {1, 2, 3, 10, 1000, 1 << 20}) {
      const std::size_t owners = list.size();
      const CutWeights weights(list);
      const std::size_t n = blocks * kCut * owners;
      const Partition p(n, owners, &weights);
      const double all = std::accumulate(list.begin(), list.end(), 0.0);
      std::size_t at = 0;
      for (std::size_t i = 0; i < owners; ++i) {
        CAPTURE(blocks, owners, i);
        const Range range = p.range(i);
        CHECK(range.begin == at);
        CHECK(range.begin % kCut == 0);
        CHECK(range.size() >= kCut);
        const double share = 1 + static_cast<double>((blocks - 1) * owners) * list[i] / all;
        CHECK(std::abs(static_cast<double>(range.size()) / kCut - share) < 1);
        at = range.end;
      }
      CHECK(at == n);
    }
}

TEST_CASE("equal weights cut as no weights do, and a buffer may be as large as a layout allows") {
  const CutWeights equal(std::vector<std::uint32_t>{7, 7, 7, 7});
  for (const std::size_t n : {4 * kCut, 40 * kCut, std::size_t{1} << 48})
    for (std::size_t owner = 0; owner < 4; ++owner)
      CHECK(Partition(n, 4, &equal).range(owner) == Partition(n, 4).range(owner));
  const CutWeights lopsided(std::vector<std::uint32_t>{1, 4294967294U});
  CHECK(Partition(std::size_t{1} << 48, 2, &lopsided).range(0).size() == 257 * kCut);
  CHECK(Partition(0, 2, &lopsided).range(1).empty());
  CHECK_THROWS_AS(CutWeights(std::vector<std::uint32_t>{3, 0}), Error);
  CHECK_THROWS_AS(CutWeights(std::vector<std::uint32_t>{4294967295U, 1}), Error);
  CHECK_THROWS_AS(Partition(6 * kCut, 3, &equal), Error);
}

TEST_CASE("pieces lie one after the other in an owner's storage, trained units first, whatever the weights") {
  std::vector<UnitSpec> units{
      {"a", {{{"a", {70000}, {}}, 0}}, false}, {"b", {{{"b", {5000}, {}}, 1}}}, {"c", {{{"c", {90000}, {}}, 2}}}};
  Layout layout = make_layout(units, 3);
  layout.piece_elements = kLeastPieceElements;
  layout.weights = CutWeights(std::vector<std::uint32_t>{5, 1, 1});
  for (std::size_t owner = 0; owner < 3; ++owner) {
    std::vector<Range> places;
    std::size_t trained = 0;
    for (const Piece& piece : make_pieces(layout)) {
      if (piece.owner != owner) continue;
      CHECK(layout.partition(piece.unit).range(owner).contains(piece.range));
      places.push_back({piece.offset, piece.offset + piece.range.size()});
      if (piece.unit != 0) trained = std::max(trained, places.back().end);
    }
    CHECK(trained == layout.owned_trained_elements(owner));
    std::sort(places.begin(), places.end());
    std::size_t at = 0;
    for (const Range& place : places) {
      CHECK(place.begin == at);
      at = place.end;
    }
    CHECK(at == layout.owned_elements(owner));
  }
}

TEST_CASE("a model starts with the same values however it is cut") {
  std::vector<UnitSpec> units{
      {"u", {{{"a", {3, 100}, {Init::Kind::uniform, 0.5F}}, 0}, {{"b", {77}, {Init::Kind::normal, 2}}, 1}}}};
  const Layout layout = make_layout(units, 3);
  const UnitLayout& unit = layout.units[0];
  CHECK(unit.tensors[1].offset == 512);
  CHECK(unit.elements == 768);
  std::vector<float> whole(unit.elements);
  initialise(unit, {0, unit.elements}, 7, whole);
  for (std::size_t owner = 0; owner < 3; ++owner) {
    const Range range = layout.partition(0).range(owner);
    std::vector<float> part(range.size());
    initialise(unit, range, 7, part);
    CHECK(std::vector<float>(whole.begin() + range.begin, whole.begin() + range.end) == part);
  }
  for (const std::size_t padding : {300, 511, 512 + 77, 767}) CHECK(whole[padding] == 0);
}

TEST_CASE("what is asked of the system in vain is no bug") {
  CHECK(to_error(Error(ErrorKind::usage, "x")).kind() == ErrorKind::usage);
  CHECK(to_error(std::bad_alloc()).kind() == ErrorKind::data);
  CHECK(to_error(std::length_error("vector")).what() == std::string("out of memory"));
  CHECK(to_error(std::system_error(EAGAIN, std::generic_category())).kind() == ErrorKind::data);
  const std::filesystem::filesystem_error file("status", "run/a", std::make_error_code(std::errc::filename_too_long));
  CHECK(to_error(file).what() == std::string("run/a: File name too long"));
  CHECK(to_error(std::logic_error("x")).what() == std::string("internal error: x"));
}

TEST_CASE("an exception of a part that a program adds names the part") {
  const auto call = [](auto thrown) { call_extension([] { return "layer 1"; }, [&] { throw thrown; }); };
  CHECK_THROWS_WITH(call(std::invalid_argument("odd")), "layer 1 threw std::invalid_argument: odd");
  CHECK_THROWS_WITH(call(42), "layer 1 threw int, which is no std::exception");
  try {
    call(std::runtime_error("x"));
  } catch (const Error& error) {
    CHECK(exit_status(error.kind()) == 1);
  }
  CHECK_THROWS_WITH(call(Error(ErrorKind::data, "x")), "x");
  CHECK_THROWS_AS(call(std::bad_alloc()), std::bad_alloc);
  CHECK(call_extension([] { return "layer 1"; }, [] { return 3; }) == 3);
}

TEST_CASE("specs name the flag and the key that is wrong") {
  const Spec spec = Spec::parse("--model", "gpt:layers=4,dim=128");
  CHECK(spec.positive("layers", 1) == 4);
  CHECK(spec.positive("heads", 3) == 3);
  CHECK_THROWS_WITH(spec.allow_only({"layers"}), Catch::Contains("--model") && Catch::Contains("'dim'"));
  CHECK_THROWS_WITH(Spec::parse("--model", "gpt:layers=x").positive("layers", 1), Catch::Contains("'x'"));
  CHECK_THROWS_WITH(Spec::parse("--aggregate", "mean:k=1").allow_only({}), Catch::Contains("mean knows none"));
  CHECK_THROWS_WITH(Spec::parse("--aggregate", "mean:x").allow_only({}),
                    Catch::Contains("expected nothing after 'mean'"));
  CHECK_THROWS_WITH(Spec::parse("--model", "gpt:x").allow_only({"dim"}), Catch::Contains("KEY=VALUE after 'gpt'"));
  CHECK(Spec::parse("--schedule", "cosine:warmup=0").count("warmup", 5) == 0);
  CHECK_THROWS_WITH(Spec::parse("--schedule", "cosine:warmup=-1").count("warmup", 5),
                    Catch::Contains(">= 0, got '-1'"));
  CHECK_THROWS_AS(Spec::parse("--model", ""), Error);
  CHECK_THROWS_AS(Spec::parse("--model", "a:b=1,b=2"), Error);
  CHECK(Spec::parse("--model", "mlp:784-10").argument() == "784-10");
  CHECK(parse_bytes("--bucket", "25M") == 25 * 1024 * 1024);
  CHECK_THROWS_AS(parse_bytes("--bucket", "25Q"), Error);
  CHECK_THROWS_AS(parse_bytes("--bucket", "99999999999G"), Error);
}

TEST_CASE("a table has the names of an enumeration, and finds them") {
  enum class Colour { red, green, unnamed };
  constexpr std::array<std::string_view, 2> kNames = {"red", "green"};
  CHECK(name_in(kNames, Colour::green) == "green");
  CHECK(name_in(kNames, Colour::unnamed) == "?");
  CHECK(place_among(kNames, "--colour", "green") == 1);
  CHECK_THROWS_WITH(place_among(kNames, "--colour", "blue"), "--colour: expected one of red, green, got 'blue'");
}

TEST_CASE("exit statuses follow the kind of an error") {
  CHECK(exit_status(ErrorKind::bug) == 1);
  CHECK(exit_status(ErrorKind::protocol) == 4);
  CHECK(exit_status(ErrorKind::check_failed) == 6);
  CHECK(exit_status(static_cast<ErrorKind>(8)) == 1);
}

TEST_CASE("a CPU quota leaves as many processors as it pays for in whole") {
  CHECK(usable_processors(4, {}) == 4);
  CHECK(usable_processors(4, 8) == 4);
  CHECK(usable_processors(4, 2.5) == 2);
  CHECK(usable_processors(4, 0.5) == 1);
  CHECK(usable_processors(0, {}) == 1);
  CHECK(usable_processors() >= 1);
}

TEST_CASE("waits that fail in a row end the yielding, but for a few that try again") {
  Patience patience;
  std::vector<bool> yields;
  for (int i = 0; i < 70; ++i) {
    yields.push_back(patience.hopeful());
    patience.learn(false);
  }
  CHECK(std::count(yields.begin(), yields.end(), true) == 4 + 2);
  CHECK((yields[3] && !yields[4] && yields[31] && !yields[32] && yields[62]));
  patience.learn(true);
  CHECK(patience.hopeful());
}
