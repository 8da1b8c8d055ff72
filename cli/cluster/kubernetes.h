#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <psring/view/step/source_texts.h>

namespace psring::cli {

/// The processor time, memory and GPUs of a container, as Kubernetes writes them: "500m", "2Gi".
struct PodSize {
  std::string cpu;
  std::string memory;
  std::size_t gpus = 0;
};

/// A job as Kubernetes runs it: a pod for the coordinator, one for each server, and one for each worker.
struct KubernetesJob {
  std::string name = "psring";        ///< of all objects, with an ending; a DNS label
  std::string cluster_namespace;      ///< "": that of kubectl
  std::string image;                  ///< has psring, psring-server and psring-worker on its path
  std::string key;                    ///< the text of the job's key file; "": key_secret names it
  std::string key_secret;             ///< a Secret of the cluster with the key as job.key
  std::string runs_claim;             ///< PersistentVolumeClaim for the run folder
  std::string data_claim;             ///< PersistentVolumeClaim with the data, at /data; "": the image has the data
  std::size_t port = 7070;            ///< of the coordinator
  std::vector<std::string> job_args;  ///< options of the job, for the coordinator
  std::size_t workers = 1;
  std::size_t servers = 0;  ///< pods: none if servers run in workers' processes
  std::size_t max_restarts = 0;
  double join_timeout = 0;  ///< seconds that pods wait for each other
  PodSize worker;
  PodSize server;
};

/// Returns kubernetes.yaml, which the build has embedded (cli/CMakeLists.txt).
std::span<const view::SourceText> kubernetes_texts();

/// A file of manifests.
struct Manifest {
  std::string file;  ///< such as "worker.yaml"
  std::string text;  ///< a YAML 1.2 document in block style, which begins with "---"
};

/// Throws usage, naming the flag: a name that is no DNS label, a quantity that Kubernetes does not read.
void check(const KubernetesJob& job);

/// Returns a Secret, a headless Service, and a Job each for coordinator, servers and workers.
std::vector<Manifest> job_manifests(const KubernetesJob& job);
/// Returns a Secret, and one JobSet of the same three Jobs: the JobSet ends all of them together.
std::vector<Manifest> job_set_manifests(const KubernetesJob& job);

}  // namespace psring::cli
