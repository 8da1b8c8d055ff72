#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace psring {

/// A text is not JSON, or a value has another type than its reader asks for.
class JsonError : public std::runtime_error {
 public:
  explicit JsonError(const std::string& message, std::size_t line = 0) : runtime_error(message), line_(line) {}
  /// Returns the line, from 1, where a text stops being JSON; 0 for other errors.
  std::size_t line() const { return line_; }

 private:
  std::size_t line_;
};

/// A JSON value. An object keeps the order in which its members were added. Only json.cpp includes nlohmann's library,
/// whose templates add 5 s to the compilation of every source that uses them.
///
///   Json report = {{"steps", 7}, {"loss", 0.5}, {"shape", {2, 3}}};
///   report["bytes"]["sent"] = 12;
///   report.at("loss").get<double>();
class Json {
 public:
  Json() noexcept;
  Json(std::nullptr_t) noexcept;
  Json(bool value) noexcept;
  Json(double value) noexcept;
  template <std::integral T>
  Json(T value) noexcept : Json(std::is_signed_v<T> ? Type::negative_or_positive : Type::unsigned_number, value) {}
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <class T>
  Json(const std::vector<T>& items);
  template <class T>
  Json(const std::map<std::string, T>& members);
  /// Makes an object if each item is a list of a string and a value; else a list.
  Json(std::initializer_list<Json> items);
  static Json array();
  static Json object();

  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(Json) noexcept;
  ~Json();

  /// Throws JsonError if the text is not JSON, or is nested more than 100 levels deep.
  static Json parse(std::string_view text);
  /// Returns nothing if parse would throw.
  static std::optional<Json> try_parse(std::string_view text);
  /// Returns the text: one line, or lines indented by `indent` spaces per level. NaN and infinity become null. Throws
  /// JsonError if a string is not UTF-8.
  std::string dump(int indent = -1) const;
  /// Returns the text as one line. Bytes that are not UTF-8 become U+FFFD.
  std::string dump_any_bytes() const;

  bool is_null() const { return type_ == Type::null; }
  bool is_object() const { return type_ == Type::object; }
  bool is_array() const { return type_ == Type::array; }
  bool is_string() const { return type_ == Type::string; }
  bool is_number() const { return is_whole() || type_ == Type::real; }
  bool is_number_unsigned() const { return type_ == Type::unsigned_number; }
  const char* type_name() const;

  /// Returns the value as a bool, a number, a std::string, or a std::vector or std::map<std::string, ...> of these.
  /// Converts numbers as static_cast does. Throws JsonError if the value has another type.
  template <class T>
  T get() const;

  /// Returns the number of a list's items or of an object's members; 0 for null, 1 for other types.
  std::size_t size() const;
  /// Iterates over the items of a list, or over the values of an object.
  const Json* begin() const { return items_.data(); }
  const Json* end() const { return items_.data() + items_.size(); }
  Json& back() { return items_.back(); }
  const Json& back() const { return items_.back(); }
  template <std::integral Index>
  const Json& operator[](Index index) const {
    return items_[static_cast<std::size_t>(index)];
  }
  /// Null becomes a list. Throws JsonError if the value is neither.
  void push_back(Json item);

  template <class Value>
  struct Member {
    const std::string& key;
    Value& value;
  };
  /// Returns the members of an object; none for other types.
  std::vector<Member<const Json>> items() const&;
  std::vector<Member<Json>> items() &;
  void items() && = delete;  ///< the members would outlive the object
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Throws JsonError if the value is not an object that has the key.
  const Json& at(std::string_view key) const;
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](const char* key) const { return at(key); }
  /// Adds the key if it is missing. Null becomes an object. Throws JsonError for other types.
  Json& operator[](std::string_view key);
  Json& operator[](const char* key) { return (*this)[std::string_view(key)]; }
  /// Returns the member, or `otherwise` if the key is missing. Throws JsonError if the value is not an object.
  template <class T>
  T value(std::string_view key, T otherwise) const;
  std::string value(std::string_view key, const char* otherwise) const { return value(key, std::string(otherwise)); }
  /// Removes the member if the object has the key.
  void erase(std::string_view key);

  friend bool operator==(const Json& a, const Json& b);

 private:
  friend class JsonText;
  enum class Type : std::uint8_t { null, boolean, negative_or_positive, unsigned_number, real, string, array, object };

  template <std::integral T>
  Json(Type type, T value) noexcept : type_(type), whole_(static_cast<std::uint64_t>(value)) {}
  bool is_whole() const { return type_ == Type::negative_or_positive || type_ == Type::unsigned_number; }
  [[noreturn]] void fail_type(const char* expected) const;
  bool boolean() const;
  double real() const;
  std::uint64_t whole() const;  ///< the number, rounded towards 0, as 64 bits
  const std::string& text() const;
  const Json* find(std::string_view key) const;

  Type type_ = Type::null;
  std::uint64_t whole_ = 0;  ///< the value of a bool or of a whole number
  double real_ = 0;
  std::string text_;
  std::vector<std::string> keys_;  ///< an object's keys; items_ holds the values
  std::vector<Json> items_;
};

template <class T>
Json::Json(const std::vector<T>& items) : type_(Type::array) {
  for (const T& item : items) push_back(item);
}

template <class T>
Json::Json(const std::map<std::string, T>& members) : type_(Type::object) {
  for (const auto& [key, value] : members) (*this)[key] = value;
}

template <class T>
T Json::get() const {
  if constexpr (std::same_as<T, Json>) {
    return *this;
  } else if constexpr (std::same_as<T, bool>) {
    return boolean();
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(real());
  } else if constexpr (std::integral<T>) {
    return static_cast<T>(whole());
  } else if constexpr (std::same_as<T, std::string>) {
    return text();
  } else if constexpr (requires { typename T::mapped_type; }) {
    if (!is_object()) fail_type("an object");
    T members;
    for (std::size_t i = 0; i < keys_.size(); ++i)
      members.emplace(keys_[i], items_[i].template get<typename T::mapped_type>());
    return members;
  } else {
    if (!is_array()) fail_type("a list");
    T items;
    for (const Json& item : items_) items.push_back(item.template get<typename T::value_type>());
    return items;
  }
}

template <class T>
T Json::value(std::string_view key, T otherwise) const {
  if (!is_object()) fail_type("an object");
  const Json* const found = find(key);
  return found == nullptr ? otherwise : found->get<T>();
}

}  // namespace psring
