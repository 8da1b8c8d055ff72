#include <charconv>
#include <concepts>

#include <nlohmann/json.hpp>

#include <psring/common/base/error.h>
#include <psring/common/base/json_number.h>
#include <psring/common/proc/job.h>

namespace psring {
namespace {

/// Calls visit(name, field) for every field, so that writing and reading cannot differ.
template <class Options, class Visit>
void for_each_field(Options& o, Visit&& visit) {
  visit("strategy", o.strategy);
  visit("model", o.model);
  visit("data", o.data);
  visit("workers", o.workers);
  visit("servers", o.servers);
  visit("virtual_workers", o.virtual_workers);
  visit("global_batch", o.global_batch);
  visit("accumulate", o.accumulate);
  visit("accumulate_at", o.accumulate_at);
  visit("steps", o.steps);
  visit("epochs", o.epochs);
  visit("seed", o.seed);
  visit("shuffle", o.shuffle);
  visit("pad", o.pad);
  visit("units", o.units);
  visit("freeze", o.freeze);
  visit("init", o.init);
  visit("optimizer", o.optimizer);
  visit("lr", o.lr);
  visit("momentum", o.momentum);
  visit("nesterov", o.nesterov);
  visit("weight_decay", o.weight_decay);
  visit("beta1", o.beta1);
  visit("beta2", o.beta2);
  visit("eps", o.eps);
  visit("alpha", o.alpha);
  visit("clip_norm", o.clip_norm);
  visit("schedule", o.schedule);
  visit("precision", o.precision);
  visit("comm_dtype", o.comm_dtype);
  visit("master_copy", o.master_copy);
  visit("loss_scale", o.loss_scale);
  visit("activation_checkpointing", o.activation_checkpointing);
  visit("consistency", o.consistency);
  visit("remedy", o.remedy);
  visit("backup_workers", o.backup_workers);
  visit("compress", o.compress);
  visit("error_feedback", o.error_feedback);
  visit("optimizer_on", o.optimizer_on);
  visit("aggregate", o.aggregate);
  visit("placement", o.placement);
  visit("local_reduce", o.local_reduce);
  visit("server_threads", o.server_threads);
  visit("device", o.device);
  visit("server_device", o.server_device);
  visit("share_gpu", o.share_gpu);
  visit("cuda_graphs", o.cuda_graphs);
  visit("threads", o.threads);
  visit("algorithm", o.algorithm);
  visit("tuning", o.tuning);
  visit("streams", o.streams);
  visit("bucket_bytes", o.bucket_bytes);
  visit("overlap", o.overlap);
  visit("bucket_order", o.bucket_order);
  visit("prefetch", o.prefetch);
  visit("reshard_after_forward", o.reshard_after_forward);
  visit("share_host_parameters", o.share_host_parameters);
  visit("shard_group", o.shard_group);
  visit("transport", o.transport);
  visit("link", o.link);
  visit("encrypt", o.encrypt);
  visit("heartbeat_timeout", o.heartbeat_timeout);
  visit("join_timeout", o.join_timeout);
  visit("op_timeout", o.op_timeout);
  visit("max_restarts", o.max_restarts);
  visit("min_workers", o.min_workers);
  visit("recovery", o.recovery);
  visit("replicas", o.replicas);
  visit("run_id", o.run_id);
  visit("resume", o.resume);
  visit("checkpoint_every", o.checkpoint_every);
  visit("checkpoint_dir", o.checkpoint_dir);
  visit("checkpoint_keep", o.checkpoint_keep);
  visit("compute", o.compute);
  visit("fault", o.fault);
  visit("eval_every", o.eval_every);
  visit("trace", o.trace);
  visit("out", o.out);
}

template <class T>
void write(nlohmann::ordered_json& json, const T& value) {
  json = value;
}
template <class T>
void write(nlohmann::ordered_json& json, const std::optional<T>& value) {
  if (value) json = *value;
}
constexpr const char* kDescription = "the job's description";

template <class T>
void read(const nlohmann::ordered_json& json, const char* name, T& value) {
  if constexpr (std::unsigned_integral<T> && !std::same_as<T, bool>)
    value = whole_number<T>(json, kDescription, name);
  else
    value = json.get<T>();
}
template <class T>
void read(const nlohmann::ordered_json& json, const char* name, std::optional<T>& value) {
  value.reset();
  if (!json.is_null()) read(json, name, value.emplace());
}

}  // namespace

std::optional<std::size_t> JobOptions::shard_owners() const {
  if (shard_group == "host") return std::nullopt;
  if (shard_group.empty()) return workers;
  std::size_t count = 0;
  const char* const end = shard_group.data() + shard_group.size();
  const auto [at, error] = std::from_chars(shard_group.data(), end, count);
  if (error != std::errc{} || at != end || count == 0)
    fail(ErrorKind::usage, "--shard-group: expected host or a number of workers > 0, got '{}'", shard_group);
  if (workers % count != 0)
    fail(ErrorKind::usage, "--shard-group {}: cannot divide {} workers into groups of {}", shard_group, workers, count);
  return count;
}

std::string to_json(const JobOptions& options) {
  nlohmann::ordered_json json;
  for_each_field(options, [&](const char* name, const auto& field) { write(json[name], field); });
  return json.dump(2);
}

JobOptions job_from_json(const std::string& text) {
  JobOptions options;
  try {
    const auto json = nlohmann::ordered_json::parse(text);
    for_each_field(options, [&](const char* name, auto& field) { read(json.at(name), name, field); });
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::data, "{}: {}", kDescription, error.what());
  }
  return options;
}

}  // namespace psring
