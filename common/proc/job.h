#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <psring/common/base/mesh.h>

namespace psring {

/// The options of a job, on which all its processes agree. The process that starts the job checks them once, and the
/// coordinator hands them to every role. common/proc/options describes each field: flag, help, check, strategies.
struct JobOptions {
  std::string strategy = "ps";
  std::string model = "mlp:784-512-512-10";
  std::string data = "fashion-mnist";
  std::size_t workers = 2;
  std::size_t servers = 1;
  std::size_t tensor = 1;                   ///< workers that divide each layer among themselves
  std::size_t pipeline = 1;                 ///< stages that the layers are cut into, each of them in workers of its own
  std::string stages;                       ///< layers of each stage: 0-2,3-5; "": cut by their cost
  std::string pipeline_schedule = "gpipe";  ///< or 1f1b
  std::size_t virtual_workers = 1;          ///< strategy single only

  std::size_t global_batch = 128;       ///< over all workers
  std::size_t accumulate = 1;           ///< micro-batches of a step
  std::string accumulate_at = "local";  ///< strategy single only: local or owner
  std::optional<std::uint64_t> steps;
  std::size_t epochs = 1;  ///< used if `steps` is not set
  std::uint64_t seed = 0;
  std::string shuffle = "epoch";  ///< or none
  std::string pad = "wrap";       ///< or none
  std::string units = "layer";    ///< or block, root, N, 0+3,1+2
  std::string freeze;             ///< units that keep their values: h.0,h.1; "": none
  std::string init;               ///< a safetensors file, or ""

  std::string optimizer = "sgd";
  std::optional<double> lr;  ///< not set: the rule's default
  std::optional<double> momentum;
  bool nesterov = false;
  std::optional<double> weight_decay;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> eps;
  std::optional<double> alpha;
  double clip_norm = 0;  ///< 0: off
  std::string schedule = "constant";

  std::string table_optimizer = "sgd";      ///< of rows, with its options: see optim::register_builtin_row_rules
  std::optional<double> table_lr;           ///< not set: the rule's default
  std::string table_type = "f32";           ///< of rows and row gradients on the wire: f32 or bf16
  std::string table_init = "uniform:0.05";  ///< of rows: uniform:A, normal:A or constant:A
  std::string table_consistency;            ///< of rows, see Consistency; "": as `consistency`
  std::size_t table_lookahead = 0;          ///< steps by which rows are pulled ahead
  std::size_t table_cache = 0;              ///< bytes of rows of its last steps that a worker keeps, of each table
  std::string table_admit;                  ///< "": a key's first update makes its row
  std::string table_ttl;                    ///< "": rows stay
  std::string table_rows;                   ///< "": as many as the host's memory holds
  std::uint64_t table_sweep = 100;          ///< steps between two sweeps of rows that leave
  std::string table_compress = "none";      ///< of row gradients on the wire: none, bf16 or int8
  std::string table;                        ///< options of single tables, see options::named_tables; "": none

  std::string precision = "f32";                 ///< type of parameters and activations: f32, bf16 or f16
  std::string comm_dtype;                        ///< type of gradients, kept and sent; "": as `precision`
  bool master_copy = true;                       ///< the owner of a narrow parameter keeps a copy in f32
  std::string loss_scale = "auto";               ///< or dynamic, off, a number
  std::string activation_checkpointing = "off";  ///< or unit

  std::string consistency = "bsp";  ///< see Consistency
  std::string remedy = "none";
  std::size_t backup_workers = 0;
  std::string compress = "none";        ///< see optim::make_codec
  bool error_feedback = true;           ///< the loss of compression is added to the next gradient
  std::string optimizer_on = "server";  ///< or worker
  std::string aggregate = "mean";
  /// The place of servers. standalone: each server is a process; colocated: server r runs in worker r; mixed: one
  /// server runs in each worker, and the others, which have the first ranks, are processes.
  std::string placement = "standalone";
  bool local_reduce = false;  ///< workers of a host sum gradients, one of them pushes
  std::size_t server_threads = 1;
  std::string device = "cpu";         ///< of the workers: cpu or cuda
  std::string server_device = "cpu";  ///< of the servers: cpu or cuda
  bool share_gpu = false;             ///< several workers may compute on one GPU
  bool cuda_graphs = true;            ///< repeated kernels are launched as one CUDA graph
  std::size_t threads = 1;            ///< compute threads of a worker

  std::string algorithm = "auto";  ///< all-reduce algorithm: auto, or a ring::Algorithm
  std::string tuning;              ///< a ring::Tuning as JSON, for auto; "": the built-in table
  std::size_t streams = 1;         ///< sockets of each TCP link between workers
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool overlap = true;
  std::string bucket_order = "reverse";  ///< or forward
  std::size_t prefetch = 1;              ///< stage 3: units that are gathered ahead
  bool reshard_after_forward = true;     ///< stage 3: parameters are dropped between forward and backward
  bool share_host_parameters = false;    ///< stage 3: parameters are read in their owners' memory
  std::string shard_group;               ///< workers that cut units among themselves: "" (all), host, or a number

  std::string transport = "auto";  ///< auto, shm, tcp
  std::string link;                ///< RATE[,DELAY] of every process's links; "": not shaped
  bool encrypt = false;
  double heartbeat_timeout = 10;  ///< seconds of silence after which a peer is lost
  double join_timeout = 60;
  double op_timeout = 0;         ///< seconds, the longest wait for values; 0: as long as the peer lives
  std::size_t max_restarts = 0;  ///< lost processes that may be started again
  std::size_t min_workers = 0;   ///< --elastic: the fewest workers that the job continues with; 0: all
  /// The source of a job's values after a loss: servers, workers or checkpoint. auto before the job is resolved.
  std::string recovery = "auto";
  std::size_t replicas = 0;  ///< followers of each server: 0 or 1

  std::string run_id;                ///< marks this run's checkpoints; "": none are saved
  std::string resume;                ///< a checkpoint to continue from, or ""
  bool other_data = false;           ///< `resume` may be of a run on other data
  std::size_t checkpoint_every = 0;  ///< steps; 0: none are saved
  std::string checkpoint_dir;        ///< "": checkpoints/ in the run folder
  std::size_t checkpoint_keep = 0;   ///< checkpoints to keep, the newest; 0: all

  std::string compute = "model";  ///< model, or sleep:50ms: forward and backward only sleep
  std::string fault;              ///< see Fault

  std::size_t eval_every = 0;    ///< steps; 0: at the end only
  std::size_t eval_samples = 0;  ///< the first ones of the test set; 0: all
  bool events = false;           ///< every process records its events
  bool trace = false;            ///< the same; trace.json is written from the events at the end
  std::string live;              ///< ADDR:PORT of the live view; "": there is none, and no process sends statuses
  bool tensorboard = false;      ///< the coordinator writes the metrics for TensorBoard, too
  std::string out;               ///< run folder on worker 0's host, which gets model.safetensors; "": no model is saved

  /// Makes the job begin from a checkpoint.
  /// The beginning that the job had, another checkpoint or --init, is dropped.
  void continue_from(std::string checkpoint) {
    resume = std::move(checkpoint);
    init.clear();
  }
  const std::string& row_consistency() const { return table_consistency.empty() ? consistency : table_consistency; }
  bool records_events() const { return events || trace; }
  std::string checkpoint_folder() const {  // "" if no checkpoints are saved; all processes must be able to open it
    if (checkpoint_every == 0) return "";
    return checkpoint_dir.empty() ? out + "/checkpoints" : checkpoint_dir;
  }
  /// Servers that run in workers' processes. These have the last ranks.
  std::size_t colocated_servers() const { return placement == "standalone" ? 0 : std::min(workers, servers); }
  /// Servers that are processes of their own, without their followers.
  std::size_t standalone_servers() const { return servers - colocated_servers(); }
  /// The rank of the server in a worker's process; nothing if the worker has none.
  std::optional<std::size_t> server_in(std::size_t worker) const {
    return worker < colocated_servers() ? std::optional(standalone_servers() + worker) : std::nullopt;
  }
  /// Server processes that are started: standalone servers and their followers.
  std::size_t server_processes() const { return standalone_servers() * (1 + replicas); }
  /// Does the job continue after the loss of a process?
  bool goes_on() const { return max_restarts > 0 || min_workers > 0; }
  /// The workers that cut units among themselves; nullopt for --shard-group host. Throws usage if it is no number.
  std::optional<std::size_t> shard_owners() const;
  /// The mesh of all workers. REQUIRES: --tensor times --pipeline divides the workers.
  Mesh mesh() const { return {.data = data_workers(), .tensor = tensor, .pipeline = pipeline}; }
  /// The size of the data-parallel group: n in every formula.
  std::size_t data_workers() const { return workers / (tensor * pipeline); }
  /// The most samples of one worker in a step. After a loss, some of the remaining workers may have one sample less.
  std::size_t batch_per_worker() const {
    const std::size_t parts = data_workers() * virtual_workers;
    return (global_batch + parts - 1) / parts;
  }
};

std::string to_json(const JobOptions& options);
/// Reads the text of to_json: every field under its name. Throws data if the text has another form.
JobOptions job_from_json(const std::string& text);

}  // namespace psring
