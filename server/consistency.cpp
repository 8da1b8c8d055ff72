#include <psring/common/base/error.h>
#include <psring/common/base/spec.h>
#include <psring/server/consistency.h>

namespace psring::server {
namespace {

class BulkSynchronous final : public Consistency {
 public:
  bool update_due(std::size_t pushed, std::size_t workers) const override { return pushed == workers; }
  bool answers(std::uint64_t version, std::uint64_t wanted) const override { return version >= wanted; }
};

}  // namespace

std::unique_ptr<Consistency> make_consistency(const Spec& spec) {
  if (spec.name() != "bsp") fail(ErrorKind::usage, "--consistency: expected bsp, got '{}'", spec.text());
  spec.allow_only({});
  return std::make_unique<BulkSynchronous>();
}

}  // namespace psring::server
