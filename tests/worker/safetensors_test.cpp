#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/worker/model/safetensors.h>

using namespace psring;
using namespace psring::worker;
using Catch::Contains;
using psring::test::read_file;
using psring::test::TemporaryFolder;
using psring::test::write_file;

namespace {

std::string with_length(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::vector<TensorSpec> specs() {
  return {{"layers.1.weight", {2, 3}, {}}, {"layers.0.bias", {4}, {}}, {"scalar", {}, {}}, {"none", {0, 7}, {}}};
}

std::vector<float> values() {
  return {1, -2, 0.5F, 3e38F, -0.0F, 1e-40F, std::numeric_limits<float>::infinity(), 8, 9, 10, 11};
}

void save(const std::string& path, std::size_t piece = 100) {
  TensorWriter writer(path, specs());
  const std::vector<float> all = values();
  for (std::size_t i = 0; i < all.size(); i += piece)
    writer.append(std::span(all).subspan(i, std::min(piece, all.size() - i)));
  writer.commit();
}

std::vector<float> read_all(const TensorFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  REQUIRE(entry != nullptr);
  std::vector<float> out(entry->elements);
  file.read(*entry, 0, out);
  return out;
}

void refuses(const std::string& path, const std::function<void()>& call, const std::string& why) {
  try {
    call();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::data);
    CHECK_THAT(e.what(), Contains(path) && Contains(why) && !Contains("\n"));
    return;
  }
  FAIL("no error was thrown, expected: " << why);
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& at) {
  return std::string("\"") + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + at +
         "}";
}

}  // namespace

TEST_CASE("tensors come back as they were saved") {
  TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  save(path);
  const TensorFile file(path);
  CHECK(file.entries().size() == 4);
  CHECK(file.find("layers.1.weight")->shape == std::vector<std::size_t>{2, 3});
  const std::vector<float> all = values();
  CHECK(read_all(file, "layers.1.weight") == std::vector(all.begin(), all.begin() + 6));
  CHECK(read_all(file, "layers.0.bias") == std::vector(all.begin() + 6, all.begin() + 10));
  CHECK(read_all(file, "scalar") == std::vector<float>{11});
  CHECK(read_all(file, "none").empty());
  CHECK(std::signbit(read_all(file, "layers.1.weight")[4]));
  CHECK(file.find("layers.0") == nullptr);
  std::vector<float> two(2);
  file.read(*file.find("layers.1.weight"), 1, two);
  CHECK(two == std::vector<float>{-2, 0.5F});
  CHECK_THROWS_AS(file.read(*file.find("layers.1.weight"), 5, two), Error);
}

TEST_CASE("equal models are identical files, however they are written") {
  TemporaryFolder folder;
  save(folder.file("a"));
  save(folder.file("b"), 1);
  const std::string a = read_file(folder.file("a"));
  CHECK(a == read_file(folder.file("b")));
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"layers.1.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("layers.0.bias":{"dtype":"F32","shape":[4],"data_offsets":[24,40]},)"
      R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[40,44]},)"
      R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[44,44]}})";
  CHECK(a.substr(8, header.size()) == header);
  CHECK((a.size() - 44) % 8 == 0);
  CHECK(a.find_first_not_of(' ', 8 + header.size()) >= a.size() - 44);
}

TEST_CASE("a file is written whole, or not at all") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  {
    TensorWriter writer(path, specs());
    writer.append(std::vector<float>(10));
    CHECK_THROWS_WITH(writer.commit(), Contains("4 bytes"));
    CHECK_THROWS_AS(writer.append(std::vector<float>(2)), Error);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  const std::vector<TensorSpec> twice{{"a", {1}, {}}, {"a", {1}, {}}};
  CHECK_THROWS_WITH(TensorWriter(path, twice), Contains("'a'"));
  CHECK(std::filesystem::is_empty(folder.path()));
  refuses(
      "no/such", [&] { TensorWriter(folder.file("no/such/m"), specs()); }, "cannot create");
}

TEST_CASE("an independent reader finds the same") {
  if (!std::filesystem::exists("/usr/bin/python3")) {
    std::puts("SKIPPED: there is no /usr/bin/python3");
    return;
  }
  TemporaryFolder folder;
  save(folder.file("m"));
  const std::string script = write_file(folder.file("reader.py"), R"(
import json, struct, sys
raw = open(sys.argv[1], 'rb').read()
n, = struct.unpack('<Q', raw[:8])
header = json.loads(raw[8:8 + n])
data = raw[8 + n:]
assert n % 8 == 0
assert header.pop('__metadata__') == {'format': 'pt'}
def values(name):
    e = header[name]
    assert e['dtype'] == 'F32'
    a, b = e['data_offsets']
    return list(struct.unpack('<%df' % ((b - a) // 4), data[a:b]))
assert list(header) == ['layers.1.weight', 'layers.0.bias', 'scalar', 'none']
assert values('layers.0.bias') == [float('inf'), 8, 9, 10]
assert values('layers.1.weight')[:3] == [1, -2, 0.5]
assert values('scalar') == [11] and values('none') == []
assert len(data) == 44
)");
  CHECK(std::system(("/usr/bin/python3 " + script + " " + folder.file("m")).c_str()) == 0);
}

TEST_CASE("half and double precision are read as f32") {
  TemporaryFolder folder;
  const auto put = [](auto... items) {
    std::string bytes;
    ((bytes.append(reinterpret_cast<const char*>(&items), sizeof(items))), ...);
    return bytes;
  };
  const auto u = [](int v) { return static_cast<std::uint16_t>(v); };
  const std::string f16 = put(u(0x3C00), u(0xC000), u(0x0001), u(0x83FF), u(0x7BFF), u(0x7C00), u(0x8000), u(0x7E00));
  const std::string bf16 = put(u(0x3F80), u(0xC049));
  const std::string f64 = put(0.1, -1e300);
  const std::string i64 = put(std::int64_t{-3}, std::int64_t{1} << 24);
  const std::string i32 = put(std::int32_t{5});
  const std::string path = write_file(
      folder.file("m"),
      with_length(std::string("{") + tensor("h", "F16", "[8]", "[0,16]") + "," + tensor("b", "BF16", "[2]", "[16,20]") +
                      "," + tensor("d", "F64", "[2]", "[20,36]") + "," + tensor("n", "I64", "[2]", "[36,52]") + "," +
                      tensor("i", "I32", "[1]", "[52,56]") + "}",
                  f16 + bf16 + f64 + i64 + i32));
  const TensorFile file(path);
  const std::vector<float> h = read_all(file, "h");
  CHECK(std::vector(h.begin(), h.begin() + 5) == std::vector<float>{1, -2, 0x1p-24F, -1023 * 0x1p-24F, 65504});
  CHECK(std::isinf(h[5]));
  CHECK((h[6] == 0 && std::signbit(h[6])));
  CHECK(std::isnan(h[7]));
  CHECK(read_all(file, "b") == std::vector<float>{1, -3.140625F});
  CHECK(read_all(file, "d") == std::vector<float>{0.1F, -std::numeric_limits<float>::infinity()});
  CHECK(read_all(file, "n") == std::vector<float>{-3, 0x1p24F});
  refuses(
      path, [&] { read_all(file, "i"); }, "I32");
}

TEST_CASE("bad headers are refused by name") {
  TemporaryFolder folder;
  const auto bad = [&](const std::string& bytes, const std::string& why) {
    const std::string path = write_file(folder.file("m"), bytes);
    refuses(
        path, [&] { TensorFile file(path); }, why);
  };
  const auto header = [&](const std::string& entries, const std::string& why) {
    bad(with_length(std::string("{") + entries + "}", std::string(16, 'x')), why);
  };
  const auto one = [&](const std::string& dtype, const std::string& shape, const std::string& at,
                       const std::string& why) { header(tensor("a", dtype, shape, at), why); };
  const std::string a = tensor("a", "F32", "[2]", "[0,8]");

  refuses(
      "absent", [&] { TensorFile(folder.file("absent")); }, "no such file");
  bad("", "truncated");
  bad("1234567", "truncated");
  bad(std::string("\0\0\0\0\0\2\0\0{}", 10), "claims a header of 2199023255552 bytes");
  bad(std::string(8, '\xFF') + "{}", "claims a header of 18446744073709551615 bytes");
  bad(with_length(""), "not a JSON object");
  bad(with_length(" {}"), "not a JSON object");
  bad(with_length("[]"), "not a JSON object");
  bad(with_length("{} x"), "bad header");
  bad(with_length("{", "}"), "bad header");
  bad(with_length("{\"\xFF\":1}"), "bad header");
  bad(with_length(std::string("{\"") + std::string(100000, 'a')), "bad header");
  bad(with_length(R"({"a\nb":{}})"), "control characters");
  bad(with_length(std::string("{\"") + std::string(2000, 'a') + "\":{}}"), "too long");
  bad(with_length("{}", "x"), "1 bytes at the end");
  header("", "16 bytes at the end");
  header(R"("a":5)", "expected an object");
  header(R"("a":[[]])", "a list where none belongs");
  header(R"("a":{"dtype":{"b":1}})", "nested too deep");
  header(R"("a":{"shape":[[1]]})", "a list where none belongs");
  header(R"("a":{})", "has no 'dtype'");
  header(R"("a":{"dtype":"F32","shape":[4]})", "has no 'data_offsets'");
  header(R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1})", "other than");
  header(R"("a":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})", "'dtype' stands twice");
  header(R"("a":{"dtype":1,"shape":[4],"data_offsets":[0,16]})", "not text");
  header(R"("__metadata__":{"n":1},)" + tensor("a", "F32", "[4]", "[0,16]"), "'n' is not text");
  header(R"("__metadata__":"x",)" + tensor("a", "F32", "[4]", "[0,16]"), "expected an object");
  header(a + "," + tensor("a", "F32", "[2]", "[8,16]"), "'a': stands twice");
  header(a + "," + tensor("b", "F32", "[3]", "[4,16]"), "overlaps");
  header(a + "," + tensor("b", "F32", "[1]", "[12,16]"), "4 bytes before it belong to none");
  header(a, "8 bytes at the end");
  one("F33", "[4]", "[0,16]", "unknown dtype 'F33'; psring reads F32, F16, BF16, F64 and I64");
  one("F32", "[3]", "[0,16]", "does not take 16 bytes");
  one("F32", "[4]", "[0,17]", "do not lie in 16 bytes");
  one("F32", "[4]", "[16,0]", "do not lie");
  one("F32", "[4]", "[0]", "do not lie");
  one("F32", "[4]", "[0,16,16]", "do not lie");
  one("F32", "[4]", "[0,18446744073709551616]", "whole numbers");
  one("F32", "[4]", "[-1,16]", "whole numbers");
  one("F32", "[4.0]", "[0,16]", "whole numbers");
  one("F32", "4", "[0,16]", "list of numbers");
  one("F32", "[9223372036854775808,2,4]", "[0,16]", "does not take");
  one("F32", "[4611686018427387905,4]", "[0,16]", "does not take");
  bad(with_length(std::string("{") + std::string(100000, '[') + "}"), "bad header");
}

TEST_CASE("types that are not read are named with their tensor, and with those that are") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  const auto file_of = [&](const std::string& dtype, std::size_t elements, std::size_t bytes) {
    const std::string header = R"({"w":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(elements) +
                               R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    return write_file(path, with_length(header, std::string(bytes, '\0')));
  };
  for (const auto& [dtype, elements, bytes] : {std::tuple("F4", 6, 3),
                                               {"F6_E2M3", 4, 3},
                                               {"F6_E3M2", 8, 6},
                                               {"F8_E8M0", 5, 5},
                                               {"C64", 2, 16},
                                               {"BOOL", 3, 3}}) {
    const TensorFile file(file_of(dtype, static_cast<std::size_t>(elements), static_cast<std::size_t>(bytes)));
    CHECK(file.entries()[0].elements == static_cast<std::size_t>(elements));
    refuses(
        path, [&] { read_all(file, "w"); },
        "tensor w is of type " + std::string(dtype) + "; psring reads F32, F16, BF16, F64 and I64");
  }
  refuses(
      path, [&] { TensorFile(file_of("F4", 3, 2)); }, "tensor 'w': F4 of shape [3] does not take 2 bytes");
}

TEST_CASE("flipped and truncated files throw Error, and nothing else") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  save(path);
  const std::string good = read_file(path);
  const std::size_t header_end = good.size() - 44;
  int refused = 0;
  const auto open = [&](const std::string& bytes) {
    write_file(path, bytes);
    try {
      const TensorFile file(path);
      for (const TensorEntry& entry : file.entries()) {
        std::vector<float> out(entry.elements);
        file.read(entry, 0, out);
      }
    } catch (const Error& e) {
      REQUIRE(e.kind() == ErrorKind::data);
      ++refused;
    }
  };
  for (std::size_t n = 0; n < good.size(); ++n) open(good.substr(0, n));
  CHECK(refused == static_cast<int>(good.size()));
  for (std::size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    open(bad);
  }
  const CounterRng rng({.seed = 5});
  for (std::uint32_t i = 0; i < 3000; ++i) {  // several at once, with characters that JSON is made of
    std::string bad = good;
    for (std::uint32_t k = 0; k < 3; ++k) {
      const auto words = rng.block(i * 3 + k);
      bad[8 + words[0] % (header_end - 8)] = "{}[],:\"0 9e-\\"[words[1] % 13];
    }
    open(bad);
  }
  CHECK(refused > 3000);
}

TEST_CASE("a model's tensors are matched by name and shape") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  const auto write = [&](const std::vector<TensorSpec>& tensors) {
    TensorWriter writer(path, tensors);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const bool shared = tensors[i].name.ends_with("wte.weight") || tensors[i].name == "lm_head.weight";
      writer.append(std::vector<float>(tensors[i].elements(), shared ? 7.0F : static_cast<float>(i)));
    }
    writer.commit();
  };
  const auto match = [&](const std::vector<TensorSpec>& wanted) {
    const TensorFile file(path);
    match_tensors(file, wanted);
  };
  const std::vector<TensorSpec> gpt{{"wte.weight", {5, 2}, {}}, {"h.0.attn.c_attn.bias", {6}, {}}};

  write(gpt);
  match(gpt);
  refuses(
      path, [&] { match({gpt[0]}); }, "h.0.attn.c_attn.bias [6] is none of the model's");
  refuses(
      path,
      [&] {
        match({gpt[0], gpt[1], {"ln_f.bias", {2}, {}}});
      },
      "no tensor ln_f.bias [2]");
  refuses(
      path,
      [&] {
        match({{"wte.weight", {2, 5}, {}}, gpt[1]});
      },
      "has shape [5, 2], the model wants wte.weight [2, 5]");

  write({{"transformer.h.0.attn.c_attn.bias", {6}, {}},
         {"transformer.h.0.attn.bias", {1, 1, 3, 3}, {}},
         {"h.0.attn.masked_bias", {}, {}},
         {"transformer.wte.weight", {5, 2}, {}},
         {"lm_head.weight", {5, 2}, {}}});
  match(gpt);
  const TensorFile published(path);
  const auto matched = match_tensors(published, gpt);
  CHECK(matched[0]->name == "transformer.wte.weight");
  CHECK(matched[1]->name == "transformer.h.0.attn.c_attn.bias");

  write({gpt[0], gpt[1], {"lm_head.weight", {2, 5}, {}}});
  refuses(
      path, [&] { match(gpt); }, "lm_head.weight is not wte.weight");
  {
    TensorWriter untied(path, std::vector<TensorSpec>{gpt[0], gpt[1], {"lm_head.weight", {5, 2}, {}}});
    std::vector<float> all(26, 1);
    all.back() = 2;  // the head's last element
    untied.append(all);
    untied.commit();
  }
  refuses(
      path, [&] { match(gpt); }, "lm_head.weight is not wte.weight");
  write({gpt[1], {"lm_head.weight", {5, 2}, {}}});
  refuses(
      path, [&] { match({gpt[1]}); }, "lm_head.weight is not wte.weight");

  write({{"wte.weight", {5, 2}, {}}, {"transformer.wte.weight", {5, 2}, {}}, gpt[1]});
  refuses(
      path, [&] { match(gpt); }, "has both wte.weight and transformer.wte.weight");
}

TEST_CASE("a unit's range is loaded as it is initialised") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  const Layout layout = make_layout(
      {{"u", {{{"a", {3, 100}, {Init::Kind::uniform, 0.5F}}, 0}, {{"b", {77}, {Init::Kind::normal, 2}}, 1}}}}, 3);
  const UnitLayout& unit = layout.units[0];
  std::vector<float> whole(unit.elements);
  initialise(unit, {0, unit.elements}, 7, whole);
  {
    const std::vector<TensorSpec> reversed{unit.tensors[1].spec, unit.tensors[0].spec};
    TensorWriter writer(path, reversed);
    writer.append(std::span(whole).subspan(512, 77));
    writer.append(std::span(whole).first(300));
    writer.commit();
  }
  const TensorFile file(path);
  for (const Range range :
       {Range{0, 768}, Range{0, 256}, Range{256, 512}, Range{512, 768}, Range{299, 513}, Range{4, 4}}) {
    std::vector<float> out(range.size(), -1);
    load_range(file, unit, range, out);
    CHECK(out == std::vector<float>(whole.begin() + range.begin, whole.begin() + range.end));
  }
}

TEST_CASE("a value that is not finite is no initial parameter") {
  TemporaryFolder folder;
  const std::string path = folder.file("m");
  const Layout layout = make_layout({{"u", {{{"a", {400}, {}}, 0}}}}, 2);
  std::vector<float> values(400);
  values[300] = NAN;
  {
    TensorWriter writer(path, std::vector<TensorSpec>{layout.units[0].tensors[0].spec});
    writer.append(values);
    writer.commit();
  }
  const TensorFile file(path);
  std::vector<float> out(256);
  CHECK_NOTHROW(load_range(file, layout.units[0], {0, 256}, out));
  CHECK_THROWS_WITH(load_range(file, layout.units[0], {256, 512}, out),
                    Catch::Contains(path) && Catch::Contains("tensor a: element 300 is nan"));
}
