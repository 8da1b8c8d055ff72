#include <exception>
#include <limits>
#include <span>

#include <psring/common/base/system/standard_files.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/kv_handle.h>
#include <psring/server/role.h>
#include <psring/server/serve.h>

namespace {

using psring::ErrorKind;
using psring::fail;

constexpr std::size_t kMostState = std::size_t{1} << 16;  // floats of a key

int serve(const psring::RoleOptions& job, std::span<const psring_handle> handles) {
  psring::Registry<psring::server::Aggregator> aggregators;
  psring::server::register_builtin_aggregators(aggregators);
  psring::optim::OptimizerRegistry optimizers;
  psring::optim::register_builtin_optimizers(optimizers);
  for (const psring_handle& handle : handles) {
    if (handle.name == nullptr || handle.push == nullptr)
      fail(ErrorKind::usage, "psring_serve: a handle without name or push");
    if (handle.state > kMostState)
      fail(ErrorKind::usage, "psring_serve: handle '{}' with {} floats of state, at most {}", handle.name, handle.state,
           kMostState);
    if (optimizers.rows.contains(handle.name))
      fail(ErrorKind::usage, "psring_serve: the name '{}' of a handle is taken", handle.name);
    const auto push = [handle](auto values, auto state, auto pushed, float lr) {
      handle.push(handle.context, values.data(), state.data(), pushed.data(), values.size(), lr);
    };
    optimizers.rows.add(handle.name, "a handle", psring::optim::kv_handle({.push = push, .state = handle.state}));
  }
  const int signal = psring::server::run_server(job, aggregators, optimizers).signal;
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

int psring_serve(const char* endpoint, const char* key_file, int64_t rank, const psring_handle* handles, size_t count) {
  try {
    if (endpoint == nullptr || key_file == nullptr)
      fail(ErrorKind::usage, "psring_serve: endpoint or key_file is null");
    if (handles == nullptr && count > 0) fail(ErrorKind::usage, "psring_serve: handles is null");
    if (rank < -1 || rank > std::numeric_limits<std::uint32_t>::max())
      fail(ErrorKind::usage, "psring_serve: rank {}", rank);
    psring::RoleOptions job{.endpoint = endpoint, .key_file = key_file};
    if (rank >= 0) job.rank = static_cast<std::uint32_t>(rank);
    return serve(job, {handles, count});
  } catch (const std::exception& exception) {
    const psring::Error error = psring::to_error(exception);
    psring::out::error(error.what());
    return exit_status(error.kind());
  }
}
