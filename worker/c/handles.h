#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include <psring/c.h>
#include <psring/common/base/system/mutex.h>
#include <psring/worker/c/job.h>
#include <psring/worker/c/messages.h>
#include <psring/worker/c/vector.h>
#include <psring/worker/programs/table_client.h>

// The handles of the C interface. Each keeps the job alive, so that they may be freed in any order.

struct psring_group {
  /// Shared with the group's operations in flight: the handle may be freed before they are complete. Guarded by the
  /// engine's lock, as is its end.
  struct Parts {
    std::unique_ptr<psring::ring::ProcessGroup> own = nullptr;  ///< null for the world
    std::shared_ptr<psring::c::Messages> messages = nullptr;    ///< made by the first send or receive
  };

  std::shared_ptr<psring::c::Job> job;
  std::shared_ptr<Parts> parts;
  psring::ring::ProcessGroup* group = nullptr;
  std::uint32_t id = 0;
};

struct psring_vector {
  std::shared_ptr<psring::c::Job> job;
  psring::c::Vector* vector = nullptr;  ///< the job's
};

struct psring_table {
  std::shared_ptr<psring::c::Job> job;
  psring::worker::TableClient* tables = nullptr;  ///< the job's
  std::size_t number = 0;
  std::size_t width = 0;
};

struct psring_rows {
  psring_table table;
  std::shared_ptr<psring::worker::FetchedRows> rows;
};

struct psring_job {
  std::shared_ptr<psring::c::Job> job;
  psring_group world;
  psring_vector vector;
  psring::Mutex opening;
  std::list<psring_table> tables PSRING_GUARDED_BY(opening);
};

struct psring_work {
  std::shared_ptr<psring::c::Job> job;
  std::shared_ptr<psring::c::Flight> flight;
};
