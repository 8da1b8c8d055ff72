#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include <psring/common/base/parallel.h>
#include <psring/common/base/system/mutex.h>

namespace psring {

struct Parallel::Team {
  std::size_t threads = 1;
  const std::function<void(Range)>* body = nullptr;
  std::size_t size = 0;
  std::size_t grain = 1;
  std::atomic<std::size_t> round{0};
  std::atomic<std::size_t> running{0};
  std::atomic<bool> stopping{false};
  Mutex mutex;
  std::exception_ptr error PSRING_GUARDED_BY(mutex);
  std::vector<std::jthread> helpers;

  Range slice(std::size_t index) const {
    const std::size_t share = round_up((size + threads - 1) / threads, grain);
    return Range{std::min(size, index * share), std::min(size, (index + 1) * share)};
  }

  void run(std::size_t index) {
    const Range own = slice(index);
    if (own.empty()) return;
    try {
      (*body)(own);
    } catch (...) {
      const MutexLock lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void help(std::size_t index) {
    for (std::size_t seen = 0;;) {
      round.wait(seen);
      seen = round.load();
      if (stopping) return;
      run(index);
      if (running.fetch_sub(1) == 1) running.notify_one();
    }
  }
};

Parallel::Parallel(std::size_t threads) : team_(std::make_unique<Team>()) {
  check(threads > 0, "a team of no threads");
  team_->threads = threads;
  for (std::size_t i = 1; i < threads; ++i) team_->helpers.emplace_back([team = team_.get(), i] { team->help(i); });
}

Parallel::~Parallel() {
  team_->stopping = true;
  ++team_->round;
  team_->round.notify_all();
}

std::size_t Parallel::threads() const { return team_->threads; }

void Parallel::for_slices(std::size_t size, std::size_t grain, const std::function<void(Range)>& body) {
  if (team_->threads == 1 || size <= grain) {
    if (size > 0) body({0, size});
    return;
  }
  Team& team = *team_;
  team.body = &body;
  team.size = size;
  team.grain = grain;
  team.running = team.threads - 1;
  ++team.round;
  team.round.notify_all();
  team.run(0);
  for (std::size_t left = team.running.load(); left != 0; left = team.running.load()) team.running.wait(left);
  const MutexLock lock(team.mutex);
  if (team.error) std::rethrow_exception(std::exchange(team.error, nullptr));
}

}  // namespace psring
