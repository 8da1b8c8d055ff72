#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <psring/common/base/byte_ledger.h>
#include <psring/common/base/events/events.h>
#include <psring/common/proc/job.h>
#include <psring/worker/registries.h>
#include <psring/worker/trainer.h>

namespace psring::test {

/// How the threads of a job reach each other: by copies within the process, or by the links that processes use.
/// `shaped`: TCP, as --link 10gbit shapes it.
enum class Links : std::uint8_t { in_process, shm, tcp, tcp_encrypted, shaped };

/// The results of one worker of a job.
struct WorkerRun {
  std::string model;  ///< its saved parameters, byte for byte
  std::vector<StepReport> steps;
  std::vector<Evaluation> evaluations;
  std::uint64_t sent = 0;  ///< payload of the exchange, over all steps; start-up and verdicts are control
  std::uint64_t received = 0;
  std::map<Category, std::uint64_t> peaks;  ///< of its memory, where predicted
  std::uint64_t activations = 0;
  worker::Prediction predicted;  ///< its own: ranks of odd counts move different bytes
};

struct JobRun {
  std::vector<WorkerRun> workers;
  std::uint64_t servers_received = 0;  ///< as of a worker, all servers together
  std::uint64_t servers_sent = 0;
  std::uint64_t servers_replicated = 0;                         ///< payload passed on to followers
  std::vector<std::map<Category, std::uint64_t>> server_peaks;  ///< of what is predicted, by server, then by follower
  std::vector<std::string> server_states;  ///< where there are followers, all that each of them has at the end
  std::uint64_t steps = 0;
  std::uint64_t parameters = 0;  ///< elements of the layout, padding counted
  std::uint64_t test_samples = 0;
  worker::Prediction predicted;
};

/// A job of `steps` steps on 70 synthetic samples, so that an epoch ends in the middle of a batch of 12, with AdamW.
JobOptions small_job(const std::string& model, std::size_t steps);

/// Runs a whole job in this process, its workers and servers as threads, without coordinator: TrainSetup,
/// Training, Shard and serve are those of the programs. Throws what the first role to fail threw.
/// `add` adds a user's names to the built-in ones.
/// `first_of_hosts`: where --local-reduce and --shard-group host find the first worker of each host; the others are on
/// the host before them.
/// `followers`: each server has one, server s + k is that of server k.
JobRun run_job(const JobOptions& job, Links links = Links::in_process,
               const std::function<void(worker::Registries&)>& add = nullptr,
               std::vector<std::size_t> first_of_hosts = {0}, bool followers = false);

}  // namespace psring::test
