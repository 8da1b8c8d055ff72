#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace psring {

/// All that the processes of a job have to agree on: what the command line says, checked once by who
/// starts the job, and handed to every role by the coordinator. The names are those of the flags.
struct JobOptions {
  std::string strategy = "ps";
  std::string model = "mlp:784-512-512-10";
  std::string data = "fashion-mnist";
  std::size_t workers = 2;
  std::size_t servers = 1;
  std::size_t virtual_workers = 1;  ///< single only

  std::size_t global_batch = 128;       ///< over all workers
  std::size_t accumulate = 1;           ///< micro-batches a step
  std::string accumulate_at = "local";  ///< single only: or owner
  std::optional<std::uint64_t> steps;
  std::size_t epochs = 1;  ///< where no steps are given
  std::uint64_t seed = 0;
  std::string shuffle = "epoch";  ///< or none
  std::string pad = "wrap";       ///< or none
  std::string units = "layer";    ///< or block, root, N, 0+3,1+2
  std::string freeze;             ///< units that are not trained: h.0,h.1; "": none
  std::string init;               ///< a safetensors file, or ""

  std::string optimizer = "sgd";
  std::optional<double> lr;  ///< none: the rule's default
  std::optional<double> momentum;
  bool nesterov = false;
  std::optional<double> weight_decay;
  std::optional<double> beta1;
  std::optional<double> beta2;
  std::optional<double> eps;
  std::optional<double> alpha;
  double clip_norm = 0;  ///< 0: off
  std::string schedule = "constant";

  std::string precision = "f32";                 ///< of parameters and activations: or bf16, f16
  std::string comm_dtype;                        ///< of gradients, as they are kept and sent; "": as precision
  bool master_copy = true;                       ///< of parameters narrower than f32, in f32, at their owner
  std::string loss_scale = "auto";               ///< or dynamic, off, a number
  std::string activation_checkpointing = "off";  ///< or unit

  std::string consistency = "bsp";  ///< see Consistency
  std::string remedy = "none";
  std::size_t backup_workers = 0;
  std::string compress = "none";        ///< see optim::make_codec
  bool error_feedback = true;           ///< what it loses is added to the next gradient
  std::string optimizer_on = "server";  ///< or worker
  std::string aggregate = "mean";
  std::string placement = "standalone";  ///< or colocated: server r in worker r's process
  bool local_reduce = false;             ///< workers of a host add up before one of them pushes
  std::size_t server_threads = 1;
  std::string device = "cpu";         ///< that workers compute on: or cuda
  std::string server_device = "cpu";  ///< that servers add up and update on: or cuda
  bool share_gpu = false;             ///< several workers may compute on one GPU
  bool cuda_graphs = true;            ///< kernels that come again leave for a GPU as one
  std::size_t threads = 1;            ///< compute threads of a worker

  std::string algorithm = "auto";  ///< of all-reduces: auto, or a ring::Algorithm
  std::string tuning;              ///< a ring::Tuning as JSON, for auto; "": the built-in one
  std::size_t streams = 1;         ///< sockets of each of the ring's TCP links
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool overlap = true;
  std::string bucket_order = "reverse";  ///< or forward
  std::size_t prefetch = 1;              ///< units that stage 3 gathers ahead
  bool reshard_after_forward = true;     ///< stage 3: parameters go between forward and backward
  bool share_host_parameters = false;    ///< stage 3: read where their owners have them
  std::string shard_group;  ///< who cut units among themselves: "" (all workers), host, or a number of them

  std::string transport = "auto";  ///< auto, shm, tcp
  std::string link;                ///< RATE[,DELAY] that every process's links are shaped to; "": none
  bool encrypt = false;
  double heartbeat_timeout = 10;  ///< seconds of silence after which a peer is lost
  double join_timeout = 60;
  double op_timeout = 0;         ///< seconds of one wait for values; 0: as long as the peer lives
  std::size_t max_restarts = 0;  ///< lost processes that are started again
  std::size_t min_workers = 0;   ///< with how many it goes on where more cannot be had (--elastic); 0: all
  /// From what: servers or workers, which have all that the others need; or checkpoint, the newest, or the beginning.
  std::string recovery = "auto";
  std::size_t replicas = 0;  ///< of each server

  std::string run_id;                ///< tells this run's checkpoints from another's; "": none are saved
  std::string resume;                ///< a checkpoint to continue from, or ""
  std::size_t checkpoint_every = 0;  ///< steps; 0: none are saved
  std::string checkpoint_dir;        ///< "": checkpoints/ in the run folder
  std::size_t checkpoint_keep = 0;   ///< how many; 0: all

  std::string compute = "model";  ///< or sleep:50ms: how long a step's forward and backward stand still
  std::string fault;              ///< see Fault

  std::size_t eval_every = 0;  ///< steps; 0: at the end only
  bool trace = false;
  std::string out;  ///< the run folder, on the host of worker 0: model.safetensors goes there; "": not saved

  /// Where checkpoints go, "" for none: all processes have to see the same folder there.
  /// The job begins from a checkpoint, whatever it began from before.
  void continue_from(std::string checkpoint) {
    resume = std::move(checkpoint);
    init.clear();
  }
  std::string checkpoint_folder() const {
    if (checkpoint_every == 0) return "";
    return checkpoint_dir.empty() ? out + "/checkpoints" : checkpoint_dir;
  }
  /// Does it go on where processes are lost?
  bool goes_on() const { return max_restarts > 0 || min_workers > 0; }
  /// How many workers cut units among themselves, where the options alone say so: --shard-group host does not.
  std::optional<std::size_t> shard_owners() const;
  /// At most: where it cannot be divided among those who are left of more, some have one sample less.
  std::size_t batch_per_worker() const {
    const std::size_t parts = workers * virtual_workers;
    return (global_batch + parts - 1) / parts;
  }
};

std::string to_json(const JobOptions& options);
/// Throws data where the text is not what to_json writes.
JobOptions job_from_json(const std::string& text);

}  // namespace psring
