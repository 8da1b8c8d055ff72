#include <chrono>

#include <psring/worker/programs/end_of_program.h>

namespace psring::worker {

void end_of_program(Membership& member) {
  net::ControlLink& link = member.link();
  link.on_change({});
  link.report(member.report_json(""));
  link.done();
  link.flush(member.clock().now() + std::chrono::seconds(10));
}

}  // namespace psring::worker
