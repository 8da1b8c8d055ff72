#include <array>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/names.h>
#include <psring/ring/reduce_op.h>

namespace psring::ring {
namespace {

constexpr std::array<std::string_view, 14> kNames = {"sum",         "mean",       "product",     "min",     "max",
                                                     "logical_and", "logical_or", "logical_xor", "bit_and", "bit_or",
                                                     "bit_xor",     "maxloc",     "minloc",      "own"};

bool is_float(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}

}  // namespace

std::string to_string(ElementType type) {
  return std::string(name_of(type.dtype)) + (type.located ? " with index" : "");
}

ReduceOp ReduceOp::own(std::string name, Combine combine) {
  ReduceOp op(Kind::own);
  op.own_ = std::make_shared<const Own>(Own{std::move(name), std::move(combine)});
  return op;
}

ReduceOp ReduceOp::parse(const char* flag, const std::string& name) {
  return static_cast<Kind>(place_among(std::span(kNames).first(kNames.size() - 1), flag, name));
}

std::string ReduceOp::name() const { return kind_ == Kind::own ? own_->name : std::string(name_in(kNames, kind_)); }

void ReduceOp::require_meaning(ElementType type) const {
  const bool finds = kind_ == Kind::maxloc || kind_ == Kind::minloc;
  const bool integer_only = kind_ >= Kind::logical_and && kind_ <= Kind::bit_xor;
  const bool has_meaning =
      kind_ == Kind::own || (finds == type.located && !(kind_ == Kind::mean && !is_float(type.dtype)) &&
                             !(integer_only && is_float(type.dtype)));
  if (!has_meaning) fail(ErrorKind::usage, "'{}' has no meaning for elements of {}", name(), to_string(type));
}

}  // namespace psring::ring
