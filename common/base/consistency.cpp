#include <cmath>

#include <psring/common/base/consistency.h>
#include <psring/common/base/text/error.h>
#include <psring/common/base/text/spec.h>

namespace psring {

Consistency parse_consistency(const std::string& text, std::size_t backups) {
  const Spec spec = Spec::parse("--consistency", text);
  if (spec.name() == "ssp" && !spec.argument().empty())
    return {.each_push_updates = true, .bound = parse_count("--consistency ssp:K", spec.argument()), .backups = 0};
  if (text == "asp") return {.each_push_updates = true, .bound = std::nullopt, .backups = 0};
  if (text == "bsp") return {.each_push_updates = false, .bound = 0, .backups = backups};
  fail(ErrorKind::usage, "--consistency: expected bsp, ssp:K (K steps ahead of the slowest) or asp, got '{}'", text);
}

StalenessRemedy parse_remedy(const std::string& text) {
  using Kind = StalenessRemedy::Kind;
  constexpr double kLambda = 0.04;  // the value of the paper's experiments on CIFAR-10
  const Spec spec = Spec::parse("--remedy", text);
  if (text == "none") return {};
  if (text == "scale-lr") return {Kind::scale_lr};
  if (spec.name() != "dc-asgd")
    fail(ErrorKind::usage, "--remedy: expected none, scale-lr or dc-asgd:lambda=L, got '{}'", text);
  spec.allow_only({"lambda"});
  const double lambda = spec.number("lambda", kLambda);
  if (!(lambda > 0 && std::isfinite(static_cast<float>(lambda))))
    fail(ErrorKind::usage, "--remedy dc-asgd: expected lambda > 0, got {:g}", lambda);
  return {Kind::compensate, lambda};
}

}  // namespace psring
