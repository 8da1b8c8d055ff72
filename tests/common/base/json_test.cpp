#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/text/json.h>

namespace psring {
namespace {

TEST_CASE("values are written as they were made") {
  const std::vector<std::string> words{"a", "b"};
  const std::map<std::string, std::uint64_t> counts{{"x", 1}};
  const Json json = {{"null", nullptr},           {"yes", true},    {"minus", -3},
                     {"most", ~std::uint64_t{0}}, {"half", 0.5},    {"text", "\"\n\xc3\xa4"},
                     {"list", {2, 3.0}},          {"words", words}, {"counts", counts}};
  CHECK(json.dump() ==
        "{\"null\":null,\"yes\":true,\"minus\":-3,\"most\":18446744073709551615,\"half\":0.5,"
        "\"text\":\"\\\"\\n\xc3\xa4\",\"list\":[2,3.0],\"words\":[\"a\",\"b\"],\"counts\":{\"x\":1}}");
  CHECK(Json{{"a", 1}}.dump(2) == "{\n  \"a\": 1\n}");
  CHECK(Json{1, "a"}.dump() == "[1,\"a\"]");
  CHECK(Json(std::nan("")).dump() == "null");
  CHECK(Json(std::numeric_limits<double>::infinity()).dump() == "null");
}

TEST_CASE("a text is read to the same text") {
  for (const char* const text : {"null", "true", "-1", "18446744073709551615", "0.1", "1e+300", "\"\\u0001\"", "[]",
                                 "{}", "[[],{\"a\":[1]}]", "{\"b\":1,\"a\":2}"}) {
    CHECK(Json::parse(text).dump() == text);
    CHECK(Json::parse(text) == Json::parse(text));
  }
  CHECK(Json::parse("{\"a\":1,\"b\":2,\"a\":3}").dump() == "{\"a\":3,\"b\":2}");
  CHECK_FALSE(Json::parse("[1]") == Json::parse("[2]"));
  CHECK(Json::parse("1") == Json(1.0));
}

TEST_CASE("a text that is not JSON is refused") {
  for (const char* const text : {"", "{", "[1,]", "{1:2}", "nul", "1 2", "\"\xff\"", "[\"\\ud800\"]"}) {
    CHECK_THROWS_AS(Json::parse(text), JsonError);
    CHECK_FALSE(Json::try_parse(text));
  }
  const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  CHECK(Json::parse(nested(100)).dump() == nested(100));
  CHECK_THROWS_WITH(Json::parse(nested(101)), "nested more than 100 levels deep");
  CHECK_FALSE(Json::try_parse(std::string(1 << 20, '[')));
}

TEST_CASE("members and items are found, added and changed") {
  Json json;
  json["a"]["b"] = 1;
  json["list"].push_back(2);
  json["list"].push_back({{"c", "d"}});
  CHECK(json.dump() == "{\"a\":{\"b\":1},\"list\":[2,{\"c\":\"d\"}]}");
  json["a"] = json["list"];
  CHECK(json.dump() == "{\"a\":[2,{\"c\":\"d\"}],\"list\":[2,{\"c\":\"d\"}]}");
  json = json.at("list")[1];
  CHECK(json.dump() == "{\"c\":\"d\"}");
  CHECK(json.contains("c"));
  CHECK_FALSE(json.contains("d"));
  CHECK_FALSE(Json(1).contains("c"));
  for (const auto& [key, value] : json.items()) value = key;
  CHECK(json.dump() == "{\"c\":\"c\"}");
  CHECK(json.value("c", "else") == "c");
  CHECK(json.value("d", 4.5) == 4.5);
  CHECK(Json().size() == 0);
  CHECK(Json("text").size() == 1);
  CHECK(Json{1, 2}.size() == 2);
}

TEST_CASE("a value is read as another type only if both are numbers") {
  CHECK(Json(3).get<double>() == 3.0);
  CHECK(Json(-3).get<double>() == -3.0);
  CHECK(Json(2.75).get<std::size_t>() == 2);
  CHECK(Json(-2.75).get<int>() == -2);
  CHECK(Json{1, 2}.get<std::vector<std::uint32_t>>() == std::vector<std::uint32_t>{1, 2});
  CHECK(Json{{"a", 1}}.get<std::map<std::string, double>>() == std::map<std::string, double>{{"a", 1.0}});
  CHECK_THROWS_WITH(Json("3").get<double>(), "expected a number, got string");
  CHECK_THROWS_WITH(Json(3).get<std::string>(), "expected a string, got number");
  CHECK_THROWS_WITH(Json().get<bool>(), "expected true or false, got null");
  CHECK_THROWS_WITH(Json(3).get<std::vector<int>>(), "expected a list, got number");
  CHECK_THROWS_WITH(Json::object().at("a"), "key 'a' not found");
  CHECK_THROWS_WITH(Json::array().at("a"), "expected an object, got array");
  CHECK_THROWS_WITH(Json(1).value("a", 2), "expected an object, got number");
  CHECK_THROWS_AS(Json(true)["a"], JsonError);
  CHECK_THROWS_AS(Json("a").push_back(1), JsonError);
  CHECK(Json::parse("3").is_number_unsigned());
  CHECK_FALSE(Json::parse("-3").is_number_unsigned());
  CHECK_FALSE(Json::parse("3.0").is_number_unsigned());
}

TEST_CASE("strings are UTF-8, or are made so") {
  CHECK_THROWS_AS(Json("\xff").dump(), JsonError);
  CHECK(Json("\xff").dump_any_bytes() == "\"\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace psring
