// The C interface: the job, its memory and its groups.
#include <algorithm>
#include <limits>

#include <psring/c.h>
#include <psring/worker/c/guard.h>
#include <psring/worker/c/handles.h>

using psring::ErrorKind;
using psring::fail;
using psring::c::guarded;
using psring::c::Job;
using psring::c::moment_in;
using psring::c::require;

namespace {

psring::RoleOptions role_options(const psring_join_options& options) {
  require(options.endpoint, "psring_join: endpoint");
  require(options.key_file, "psring_join: key_file");
  psring::RoleOptions role{.endpoint = options.endpoint, .key_file = options.key_file};
  if (options.rank < -1 || options.rank > std::numeric_limits<std::uint32_t>::max())
    fail(ErrorKind::usage, "psring_join: the rank {}; -1 takes any", options.rank);
  if (options.rank >= 0) role.rank = static_cast<std::uint32_t>(options.rank);
  if (options.bind != nullptr) role.bind = options.bind;
  if (!(options.join_timeout >= 0)) fail(ErrorKind::usage, "psring_join: join_timeout {}", options.join_timeout);
  if (options.join_timeout > 0) role.join_timeout = std::min(options.join_timeout, psring::c::kLongestWait);
  return role;
}

psring::Category category_of(psring_purpose purpose) {
  if (purpose < PSRING_PARAMETERS || purpose > PSRING_STAGING)
    fail(ErrorKind::usage, "an unknown purpose: {}", purpose);
  return static_cast<psring::Category>(purpose);
}
static_assert(static_cast<int>(psring::Category::parameters) == PSRING_PARAMETERS &&
              static_cast<int>(psring::Category::gradients) == PSRING_GRADIENTS &&
              static_cast<int>(psring::Category::optimizer) == PSRING_OPTIMIZER &&
              static_cast<int>(psring::Category::activations) == PSRING_ACTIVATIONS &&
              static_cast<int>(psring::Category::communication) == PSRING_COMMUNICATION &&
              static_cast<int>(psring::Category::staging) == PSRING_STAGING);

/// Calls `body` with the job, in the process that joined it.
template <class Body>
psring_status on(psring_job* job, const char* function, Body body) {
  return guarded([&] {
    if (job == nullptr) fail(ErrorKind::usage, "{}: job is null", function);
    job->job->require_own_process();
    return body(*job->job);
  });
}

}  // namespace

uint32_t psring_abi_version(void) { return PSRING_ABI_VERSION; }

const char* psring_last_error(void) { return psring::c::kept_line(); }

psring_status psring_join(const psring_join_options* options, psring_job** job) {
  return guarded([&] {
    require(job, "psring_join: job");
    *job = nullptr;
    psring_join_options standard{};
    standard.rank = -1;
    const psring_join_options all = psring::c::whole(options, "psring_join: options", standard);
    constexpr std::size_t kMemory = std::size_t{1} << 30;
    auto joined = std::make_unique<psring_job>();
    joined->job =
        std::make_shared<psring::c::Job>(role_options(all), all.memory_bytes == 0 ? kMemory : all.memory_bytes);
    joined->world.job = joined->job;
    joined->world.parts = std::make_shared<psring_group::Parts>();
    joined->world.group = &joined->job->world();
    *job = joined.release();
  });
}

psring_status psring_leave(psring_job* job, double timeout) {
  return guarded([&] {
    require(job, "psring_leave: job");
    job->job->require_member();
    return job->job->leave(moment_in(timeout)) ? PSRING_OK : psring::c::pending(job->job->leaving());
  });
}

psring_status psring_abort(psring_job* job, const char* reason) {
  return on(job, "psring_abort", [&](Job& own) {
    require(reason, "psring_abort: reason");
    own.abort(reason);
  });
}

psring_status psring_check(psring_job* job) {
  return on(job, "psring_check", [](Job& own) { own.check(); });
}

void psring_free(psring_job* job) {
  if (job == nullptr || !job->job->is_own_process()) return;
  guarded([&] { delete job; });
}

psring_status psring_allocate(psring_job* job, size_t bytes, void** memory) {
  return psring_allocate_for(job, bytes, PSRING_GRADIENTS, memory);
}

psring_status psring_allocate_for(psring_job* job, size_t bytes, psring_purpose purpose, void** memory) {
  return guarded([&] {
    require(memory, "psring_allocate: memory");
    *memory = nullptr;
    require(job, "psring_allocate: job");
    job->job->require_own_process();
    *memory = job->job->allocate(bytes, category_of(purpose)).data();
  });
}

psring_status psring_book(psring_job* job, psring_purpose purpose, int64_t bytes) {
  return on(job, "psring_book", [&](Job& own) { own.book(category_of(purpose), bytes); });
}

psring_status psring_memory(psring_job* job, psring_purpose purpose, size_t* now, size_t* peak) {
  return on(job, "psring_memory", [&](Job& own) {
    require("psring_memory", {{now, "now"}, {peak, "peak"}});
    *now = own.memory().current_bytes(category_of(purpose));
    *peak = own.memory().peak_bytes(category_of(purpose));
  });
}

psring_status psring_release(psring_job* job, void* memory) {
  return on(job, "psring_release", [&](Job& own) { own.release(memory); });
}

psring_group* psring_world(psring_job* job) { return job == nullptr ? nullptr : &job->world; }

psring_status psring_split(psring_group* parent, const uint32_t* ranks, size_t count, uint32_t id,
                           psring_group** group) {
  return guarded([&] {
    require(group, "psring_split: group");
    *group = nullptr;
    require("psring_split", {{parent, "parent"}, {ranks, "ranks"}});
    parent->job->require_member();
    auto made = std::make_unique<psring_group>();
    made->job = parent->job;
    if (id < 1 || id > psring::c::kMostGroups)
      fail(ErrorKind::usage, "psring_split: the id {}; it is 1 to {}", id, psring::c::kMostGroups);
    made->id = id;
    made->parts = std::make_shared<psring_group::Parts>();
    made->parts->own = parent->job->split(*parent->group, {ranks, count}, id);
    made->group = made->parts->own.get();
    *group = made.release();
  });
}

void psring_group_free(psring_group* group) {
  if (group == nullptr || group->parts->own == nullptr || !group->job->is_own_process()) return;
  guarded([&] {
    const std::unique_ptr<psring_group> freed(group);
    freed->job->engine().locked([&] { freed->parts.reset(); });
  });
}

size_t psring_rank(const psring_group* group) { return group == nullptr ? 0 : group->group->rank(); }

size_t psring_size(const psring_group* group) { return group == nullptr ? 0 : group->group->size(); }
