#include <array>
#include <utility>

#include <psring/common/base/text/error.h>
#include <psring/ring/reduce_op.h>

namespace psring::ring {
namespace {

constexpr std::array<const char*, 14> kNames = {"sum",         "mean",       "product",     "min",     "max",
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
  std::string known;
  for (std::size_t i = 0; i + 1 < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Kind>(i);
    known += (i == 0 ? "" : ", ") + std::string(kNames[i]);
  }
  fail(ErrorKind::usage, "{}: expected one of {}, got '{}'", flag, known, name);
}

std::string ReduceOp::name() const { return kind_ == Kind::own ? own_->name : kNames[static_cast<std::size_t>(kind_)]; }

void ReduceOp::require_meaning(ElementType type) const {
  const bool finds = kind_ == Kind::maxloc || kind_ == Kind::minloc;
  const bool integer_only = kind_ >= Kind::logical_and && kind_ <= Kind::bit_xor;
  const bool has_meaning =
      kind_ == Kind::own || (finds == type.located && !(kind_ == Kind::mean && !is_float(type.dtype)) &&
                             !(integer_only && is_float(type.dtype)));
  if (!has_meaning) fail(ErrorKind::usage, "'{}' has no meaning for elements of {}", name(), to_string(type));
}

}  // namespace psring::ring
