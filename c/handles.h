#pragma once

#include <memory>
#include <utility>

#include <psring/c.h>
#include <psring/c/job.h>

// The handles of the C interface. Each keeps the job alive, so that they may be freed in any order.

struct psring_group {
  std::shared_ptr<psring::c::Job> job;
  std::unique_ptr<psring::ring::ProcessGroup> own;  ///< null for the world
  psring::ring::ProcessGroup* group = nullptr;
};

struct psring_job {
  std::shared_ptr<psring::c::Job> job;
  psring_group world;
};

struct psring_work {
  std::shared_ptr<psring::c::Job> job;
  std::shared_ptr<psring::c::Flight> flight;
};
