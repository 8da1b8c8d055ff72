#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <psring/common/base/text/json.h>
#include <psring/common/base/text/names.h>

namespace psring {
namespace {

constexpr std::size_t kMostLevels = 100;  // bounds the recursion of copying, writing and destroying a value

using Library = nlohmann::ordered_json;

}  // namespace

/// Builds a Json from the events of the library's parser, and the library's value from a Json.
class JsonText {
 public:
  Json take() { return std::move(root_); }
  const std::string& mistake() const { return mistake_; }
  std::size_t mistake_at() const { return mistake_at_; }  ///< the number of bytes read before the mistake

  // The library's parser calls these, and stops if they return false.
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& text) { return add(std::move(text)); }
  bool binary(Library::binary_t&) { return false; }  // JSON text has no binary values
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(std::string& text) {
    key_ = std::move(text);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    mistake_ = error.what();
    mistake_at_ = position;
    return false;
  }

  static Library library_of(const Json& json) {
    switch (json.type_) {
      case Json::Type::null:
        return nullptr;
      case Json::Type::boolean:
        return json.whole_ != 0;
      case Json::Type::negative_or_positive:
        return static_cast<std::int64_t>(json.whole_);
      case Json::Type::unsigned_number:
        return json.whole_;
      case Json::Type::real:
        return json.real_;
      case Json::Type::string:
        return json.text_;
      case Json::Type::array: {
        Library list = Library::array();
        for (const Json& item : json.items_) list.push_back(library_of(item));
        return list;
      }
      case Json::Type::object: {
        Library object = Library::object();
        for (std::size_t i = 0; i < json.keys_.size(); ++i) object[json.keys_[i]] = library_of(json.items_[i]);
        return object;
      }
    }
    return nullptr;
  }

 private:
  /// Returns the place of the next value: the root, a new item, or the member of the last key.
  Json& place() {
    if (open_.empty()) return root_;
    Json& parent = *open_.back();
    return parent.is_object() ? parent[key_] : parent.items_.emplace_back();
  }
  bool add(Json value) {
    place() = std::move(value);
    return true;
  }
  bool open(Json empty) {
    if (open_.size() == kMostLevels) {
      mistake_ = fmt::format("nested more than {} levels deep", kMostLevels);
      return false;
    }
    Json& at = place();
    at = std::move(empty);
    open_.push_back(&at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  /// The lists and objects around the next value. The pointers stay valid: a parent grows only after its child closes.
  std::vector<Json*> open_;
  std::string key_;
  std::string mistake_;
  std::size_t mistake_at_ = 0;
};

namespace {

std::string dumped(const Json& json, int indent, Library::error_handler_t handler) {
  try {
    return JsonText::library_of(json).dump(indent, ' ', false, handler);
  } catch (const nlohmann::json::exception& error) {
    throw JsonError(error.what());
  }
}

bool parse_into(JsonText& text, std::string_view json) { return Library::sax_parse(json, &text); }

}  // namespace

Json::Json() noexcept = default;
Json::Json(std::nullptr_t) noexcept {}
Json::Json(bool value) noexcept : Json(Type::boolean, value) {}
Json::Json(double value) noexcept : type_(Type::real), real_(value) {}
Json::Json(const char* text) : type_(Type::string), text_(text) {}
Json::Json(std::string_view text) : type_(Type::string), text_(text) {}
Json::Json(std::string text) : type_(Type::string), text_(std::move(text)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json::~Json() = default;

Json& Json::operator=(Json other) noexcept {
  type_ = other.type_;
  whole_ = other.whole_;
  real_ = other.real_;
  text_ = std::move(other.text_);
  keys_ = std::move(other.keys_);
  items_.swap(other.items_);  // `other` may be one of the items: they live until this ends
  return *this;
}

Json::Json(std::initializer_list<Json> items) {
  const bool members = std::all_of(items.begin(), items.end(), [](const Json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_string();
  });
  type_ = members ? Type::object : Type::array;
  for (const Json& item : items) {
    if (members)
      (*this)[item[0].text_] = item[1];
    else
      items_.push_back(item);
  }
}

Json Json::array() {
  Json json;
  json.type_ = Type::array;
  return json;
}

Json Json::object() {
  Json json;
  json.type_ = Type::object;
  return json;
}

Json Json::parse(std::string_view text) {
  JsonText parser;
  if (parse_into(parser, text)) return parser.take();
  const std::string_view good = text.substr(0, parser.mistake_at());
  throw JsonError(parser.mistake(), 1 + static_cast<std::size_t>(std::count(good.begin(), good.end(), '\n')));
}

std::optional<Json> Json::try_parse(std::string_view text) {
  JsonText parser;
  return parse_into(parser, text) ? std::optional(parser.take()) : std::nullopt;
}

std::string Json::dump(int indent) const { return dumped(*this, indent, Library::error_handler_t::strict); }

std::string Json::dump_any_bytes() const { return dumped(*this, -1, Library::error_handler_t::replace); }

const char* Json::type_name() const {
  static constexpr std::array<std::string_view, 8> kNames = {"null",   "boolean", "number", "number",
                                                             "number", "string",  "array",  "object"};
  return name_in(kNames, type_).data();
}

std::size_t Json::size() const {
  if (is_null()) return 0;
  return is_array() || is_object() ? items_.size() : 1;
}

void Json::push_back(Json item) {
  if (is_null()) type_ = Type::array;
  if (!is_array()) fail_type("a list");
  items_.push_back(std::move(item));
}

std::vector<Json::Member<const Json>> Json::items() const& {
  std::vector<Member<const Json>> members;
  for (std::size_t i = 0; i < keys_.size(); ++i) members.push_back({keys_[i], items_[i]});
  return members;
}

std::vector<Json::Member<Json>> Json::items() & {
  std::vector<Member<Json>> members;
  for (std::size_t i = 0; i < keys_.size(); ++i) members.push_back({keys_[i], items_[i]});
  return members;
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return found == keys_.end() ? nullptr : &items_[static_cast<std::size_t>(found - keys_.begin())];
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) fail_type("an object");
  const Json* const found = find(key);
  if (found == nullptr) throw JsonError(fmt::format("key '{}' not found", key));
  return *found;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) type_ = Type::object;
  if (!is_object()) fail_type("an object");
  if (const Json* const found = find(key); found != nullptr) return const_cast<Json&>(*found);
  keys_.emplace_back(key);
  return items_.emplace_back();
}

void Json::erase(std::string_view key) {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  if (found == keys_.end()) return;
  items_.erase(items_.begin() + (found - keys_.begin()));
  keys_.erase(found);
}

void Json::fail_type(const char* expected) const {
  throw JsonError(fmt::format("expected {}, got {}", expected, type_name()));
}

bool Json::boolean() const {
  if (type_ != Type::boolean) fail_type("true or false");
  return whole_ != 0;
}

double Json::real() const {
  if (type_ == Type::real) return real_;
  if (!is_number()) fail_type("a number");
  return type_ == Type::unsigned_number ? static_cast<double>(whole_)
                                        : static_cast<double>(static_cast<std::int64_t>(whole_));
}

std::uint64_t Json::whole() const {
  if (!is_number()) fail_type("a number");
  if (type_ != Type::real) return whole_;
  return real_ < 0 ? static_cast<std::uint64_t>(static_cast<std::int64_t>(real_)) : static_cast<std::uint64_t>(real_);
}

const std::string& Json::text() const {
  if (!is_string()) fail_type("a string");
  return text_;
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.is_whole() && b.is_whole() ? a.whole_ == b.whole_ : a.real() == b.real();
  return a.type_ == b.type_ && a.whole_ == b.whole_ && a.text_ == b.text_ && a.keys_ == b.keys_ && a.items_ == b.items_;
}

}  // namespace psring
