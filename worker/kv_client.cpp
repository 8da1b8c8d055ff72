#include <algorithm>

#include <psring/common/base/text/error.h>
#include <psring/common/device/arena.h>
#include <psring/common/proc/role.h>
#include <psring/worker/kv_client.h>
#include <psring/worker/programs/end_of_program.h>
#include <psring/worker/programs/table_client.h>
#include <psring/worker/tables/table_setup.h>

namespace psring::worker {
namespace {

constexpr std::size_t kBatches = 64;  ///< that the arena has room for; unused room takes no memory

struct RowMemory {
  explicit RowMemory(std::size_t bytes) : arena(bytes) {}

  Arena arena;
  std::unique_ptr<TableClient> tables;
};

std::size_t arena_bytes(const KvClient::Options& options) {
  const std::size_t row = sizeof(std::uint64_t) + 2 * options.width * sizeof(float);
  if (options.width == 0 || options.width > (std::size_t{1} << 13) || options.most_keys == 0 ||
      options.most_keys > (std::size_t{1} << 40) / row / kBatches)
    fail(ErrorKind::usage, "KvClient: {} keys of {} values in one call", options.most_keys, options.width);
  return kBatches * (options.most_keys * row + 4 * Arena::kAlignment) + (std::size_t{1} << 20);
}

}  // namespace

struct KvClient::State {
  State(const RoleOptions& job, const Options& options)
      : width(options.width),
        most_keys(options.most_keys),
        init(parse_row_init("KvClient: init", options.init)),
        memory(std::make_shared<RowMemory>(arena_bytes(options))),
        member(job, net::Role::worker) {
    try {
      open();
    } catch (const Error& error) {
      throw member.fail(error);
    }
  }

  void open() {
    member.keep(memory);
    member.links().connect(of_role(member.meet({}), net::Role::server), memory->arena, member.deadline());
    net::Transport& transport = member.links().transport();
    member.link().on_change([&transport] { transport.wake(); });
    memory->tables = std::make_unique<TableClient>(member, memory->arena);
    memory->tables->add(
        {.name = "values", .width = width, .init = init, .most_keys = most_keys, .most_bags = most_keys});
    step = memory->tables->start();
  }

  TableClient& tables() const { return *memory->tables; }

  const std::size_t width;
  const std::size_t most_keys;
  const Init init;
  std::uint64_t step = 0;                   ///< pushes of this worker so far
  const std::shared_ptr<RowMemory> memory;  ///< shared with the member: its links close first
  Membership member;
};

KvClient::KvClient(const RoleOptions& job, Options options) : state_(std::make_unique<State>(job, options)) {}

KvClient::~KvClient() = default;

std::size_t KvClient::rank() const { return state_->member.rank(); }

std::size_t KvClient::workers() const { return state_->member.job().workers; }

void KvClient::push(std::span<const std::uint64_t> keys, std::span<const float> values, double lr) {
  if (values.size() != keys.size() * state_->width)
    fail(ErrorKind::usage, "KvClient: {} values for {} keys of {} each", values.size(), keys.size(), state_->width);
  wait();
  state_->tables().add(0, keys, values);
  try {
    state_->tables().end_step(lr);
  } catch (const Error&) {
    state_->tables().drop();  // a push that was refused leaves nothing for the next one
    throw;
  }
  ++state_->step;
}

void KvClient::wait() { state_->tables().wait_idle(kNever); }

KvClient::Pull KvClient::begin_pull(std::span<const std::uint64_t> keys) {
  return state_->tables().fetch(0, keys, state_->step);
}

void KvClient::end_pull(const Pull& pull, std::span<float> values) {
  if (pull == nullptr) fail(ErrorKind::usage, "KvClient: the end of a pull that has not begun");
  const FetchedRows& rows = *pull;
  const std::size_t width = state_->width;
  if (values.size() != rows.places().size() * width)
    fail(ErrorKind::usage, "KvClient: room for {} values of {} keys of {} each", values.size(), rows.places().size(),
         width);
  state_->tables().wait(rows, kNever);
  for (std::size_t key = 0; key < rows.places().size(); ++key)
    std::ranges::copy(rows.values().subspan(static_cast<std::size_t>(rows.places()[key]) * width, width),
                      values.begin() + static_cast<std::ptrdiff_t>(key * width));
}

void KvClient::finish() {
  wait();
  end_of_program(state_->member);
}

}  // namespace psring::worker
