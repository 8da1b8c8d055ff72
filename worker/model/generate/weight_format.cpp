#include <fmt/format.h>

#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>
#include <psring/worker/model/generate/weight_format.h>

namespace psring::worker {

WeightFormat WeightFormat::parse(std::string_view flag, const std::string& text) {
  const Spec spec = Spec::parse(flag, text);
  WeightFormat format;
  if (spec.name() == "f32" || spec.name() == "int8") {
    spec.allow_only({});
    format.kind = spec.name() == "f32" ? Kind::f32 : Kind::int8;
    return format;
  }
  if (spec.name() != "int4") fail(ErrorKind::usage, "{} {}: expected f32, int8 or int4", flag, text);
  spec.allow_only({"group", "scheme"});
  format.kind = Kind::int4;
  format.group = spec.positive("group", format.group);
  if (format.group % 32 != 0 || format.group > 128)
    fail(ErrorKind::usage, "{} {}: expected a group of 32, 64, 96 or 128 inputs", flag, text);
  const std::string scheme = spec.string("scheme", "symmetric");
  if (scheme != "symmetric" && scheme != "affine")
    fail(ErrorKind::usage, "{} {}: expected a scheme of symmetric or affine", flag, text);
  format.affine = scheme == "affine";
  return format;
}

std::string WeightFormat::text() const {
  if (kind == Kind::f32) return "f32";
  if (kind == Kind::int8) return "int8";
  return fmt::format("int4:group={},scheme={}", group, affine ? "affine" : "symmetric");
}

std::size_t WeightFormat::size_bytes(std::size_t inputs, std::size_t columns) const {
  switch (kind) {
    case Kind::f32:
      return 4 * inputs * columns;
    case Kind::int8:
      return (inputs + 4) * columns;
    case Kind::int4:
      return inputs * columns / 2 + groups(inputs) * columns * (affine ? 5 : 4);
  }
  return 0;
}

}  // namespace psring::worker
