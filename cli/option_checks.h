#pragma once

#include <string>

#include <psring/common/proc/fault.h>
#include <psring/common/proc/job.h>
#include <psring/worker/registries.h>

namespace psring::cli {

// Options that rule each other out. All throw usage, and name those that do.

/// What asks for one update of all workers' gradients together, where each push is one. Which optimizers do is seen
/// where they are made.
void check_asynchronous(const JobOptions& job, const worker::StrategyKind& kind);

/// --backup-workers: a late worker has to be able to go on with what the servers have.
void check_backup_workers(const JobOptions& job);

/// --compress: gradients are f32, and what each worker keeps of them is saved at the step of all.
void check_compression(const JobOptions& job);

/// Is there what the fault hits?
bool hits_somebody(const Fault& fault, const JobOptions& job);
void check_faults(const JobOptions& job, const worker::StrategyKind& kind);

/// What GPUs can do, and what they exchange through NCCL.
void check_device(const JobOptions& job, const worker::StrategyKind& kind);

/// --share-host-parameters: the memory is there, and nothing is asked of gathers that there are none of.
void check_in_place(const JobOptions& job);

/// --replicas: followers that take their servers' places.
void check_replicas(const JobOptions& job);

/// --elastic, which was given as `range`: with fewer workers than before, what depends on how many they are has to be
/// made anew by all who are left.
void check_elastic(const JobOptions& job, const std::string& range);

}  // namespace psring::cli
