#include <string>
#include <utility>

#include <fmt/format.h>

#include <psring/common/base/system/extension.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/kv_handle.h>

namespace psring::optim {
namespace {

class HandleRule final : public RowRule {
 public:
  HandleRule(std::string name, KvHandle handle) : name_(std::move(name)), handle_(std::move(handle)) {}

  const char* name() const override { return name_.c_str(); }
  std::size_t slots() const override { return handle_.state > 0 ? 1 : 0; }
  std::size_t slot_width(std::size_t /*width*/) const override { return handle_.state; }
  double default_lr() const override { return 1; }
  void apply(const Update& update, std::size_t width, const Rows& rows) const override {
    const auto call = [&] {
      for (std::size_t row = 0; row < rows.values.size(); ++row)
        handle_.push({rows.values[row], width}, {rows.values[row] + width, handle_.state},
                     rows.gradients.subspan(row * width, width), update.lr);
    };
    call_extension([&] { return fmt::format("handle '{}'", name_); }, call);
  }

 private:
  const std::string name_;
  const KvHandle handle_;
};

}  // namespace

std::function<std::unique_ptr<RowRule>(const Spec&)> kv_handle(KvHandle handle) {
  if (!handle.push) fail(ErrorKind::usage, "kv_handle: a handle without push");
  return [handle = std::move(handle)](const Spec& spec) {
    spec.allow_only({});
    return std::make_unique<HandleRule>(spec.name(), handle);
  };
}

}  // namespace psring::optim
