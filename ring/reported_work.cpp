#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <psring/ring/reported_work.h>

namespace psring::ring {
namespace {

class ReportedOperation final : public Operation {
 public:
  ReportedOperation(Work work, Events::Flight flight) : work_(std::move(work)), flight_(std::move(flight)) {}

  bool advance() override {
    const bool done = work_.done();
    if (done) flight_.land();
    return done;
  }
  void wait() override {
    work_.wait();
    if (work_.done()) flight_.land();  // on a GPU the operation may still be in flight when `wait` returns
  }
  std::vector<std::size_t> awaited() const override { return work_.awaited(); }

 private:
  Work work_;
  Events::Flight flight_;
};

}  // namespace

Events::Flight begin_flight(Events& events, const Request& request, Events::Source source) {
  return {events, {to_string(request.call.collective), {}, request.data.bytes()}, source};
}

Work reported(Work work, Events::Flight flight) {
  return Work(std::make_shared<ReportedOperation>(std::move(work), std::move(flight)));
}

}  // namespace psring::ring
