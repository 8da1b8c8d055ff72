// The job's description, as the coordinator hands it to roles: one that is taken is written and read as the same.
#include <psring/common/proc/job.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const std::string text(in.text());
  refuses(ErrorKind::data, [&] {
    const std::string once = to_json(job_from_json(text));
    require(to_json(job_from_json(once)) == once, "a job that is read as it was written");
  });
}
