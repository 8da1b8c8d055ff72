#include <psring/common/base/consistency.h>
#include <psring/common/net/tcp/handshake.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/table.h>

// The processes of a job, and the way of values between them.

namespace psring::options {
namespace {

constexpr Need kServers = {Feature::servers, "has no servers"};
constexpr Need kBuckets = {Feature::buckets, "has no buckets"};
constexpr Need kGathers = {Feature::gathered_parameters, "gathers no parameters"};
constexpr Need kAllReduces = {Feature::collectives, "has no all-reduces"};

constexpr std::size_t kMostBucketBytes = std::size_t{1} << 40;  // above the gradients of any model that fits

constexpr Option kProcesses[] = {
    {.name = "workers",
     .help = "worker processes",
     .form = Form::whole,
     .field = &JobOptions::workers,
     .check = CountUpTo{kMostProcesses},
     .everyday = true},
    {.name = "servers",
     .value = "N|mixed:K",
     .help = "servers (1; colocated: as many as workers); mixed:K: a server in each worker's process and K standalone "
             "servers, which own more of each unit",
     .form = Form::derived,
     .field = &JobOptions::servers,  // set by cli/resolve.cpp: a strategy without servers takes 0
     .everyday = true,
     .standard = ""},
    {.name = "placement",
     .value = "WHERE",
     .help = "standalone: servers are processes; colocated: server r is a part of worker r (ps-colocated, dp)",
     .field = &JobOptions::placement,
     .check = OneOf{"standalone", "colocated"},
     .exchange_only = true,
     .standard = ""},
    {.name = "virtual-workers",
     .help = "single: repeat the arithmetic of this many workers in one process",
     .form = Form::whole,
     .field = &JobOptions::virtual_workers,
     .check = CountUpTo{kMostProcesses},
     .needs = {{{Feature::one_process, "is not one process"}}}},
    {.name = "units",
     .value = "UNITS",
     .help = "layers that are one unit of communication: layer, block, root (all layers), N layers each, or sets such "
             "as 0+3,1+2",
     .field = &JobOptions::units},
};

constexpr Option kUpdates[] = {
    {.name = "consistency",
     .value = "MODEL",
     .help = "bsp (all workers in step), ssp:K (up to K steps ahead of the slowest worker) or asp (nobody waits) (bsp; "
             "ps-ssp: ssp:3; ps-async: asp)",
     .field = &JobOptions::consistency,
     .check = Parses{[](const std::string& text) { parse_consistency(text); }},
     .needs = {{{Feature::servers, "has no servers: it is bsp by nature"}}},
     .everyday = true,
     .exchange_only = true,
     .standard = ""},
    {.name = "remedy",
     .value = "NAME",
     .help = "for stale gradients of ssp and asp: none, scale-lr (rate / (1 + staleness)) or dc-asgd:lambda=L (delay "
             "compensation)",
     .field = &JobOptions::remedy,
     .check = Parses{[](const std::string& text) { parse_remedy(text); }},
     .needs = {{{Feature::stale_gradients, "has no stale gradients: --consistency ssp:K or asp has"}}},
     .exchange_only = true},
    {.name = "backup-workers",
     .help = "bsp: workers whose gradients an update does not wait for",
     .form = Form::whole,
     .field = &JobOptions::backup_workers,
     .needs = {{kServers, {Feature::own_pushes, "waits for all"}}},
     .exchange_only = true},
    {.name = "compress",
     .value = "CODEC",
     .help =
         "compression of gradients: none, bf16, int8, sign (1 bit), top-k:ratio=R, random-k:ratio=R (R is 0.01), or "
         "in ddp and zero1 power-sgd:rank=R (R is 2)",
     .field = &JobOptions::compress,
     .needs = {{{Feature::compressed_gradients, "sends no gradients that it could compress"}}},
     .everyday = true,
     .exchange_only = true},
    {.name = "error-feedback",
     .help = "on: add to the next gradient the part that --compress lost; off: drop that part",
     .form = Form::on_off,
     .field = &JobOptions::error_feedback,
     .exchange_only = true},
    {.name = "optimizer-on",
     .value = "server|worker",
     .help = "server: servers update the parameters; worker: servers only aggregate gradients (server; dp: worker)",
     .field = &JobOptions::optimizer_on,
     .check = OneOf{"server", "worker"},
     .needs = {{kServers}},
     .exchange_only = true,
     .standard = ""},
    {.name = "local-reduce",
     .help = "the workers of a host add their gradients up in shared memory, and one of them pushes the sum",
     .form = Form::flag,
     .field = &JobOptions::local_reduce,
     .needs = {{kServers, {Feature::own_pushes, "has one push a worker"}}},
     .exchange_only = true},
    {.name = "aggregate",
     .value = "NAME",
     .help = "aggregation rule of servers: mean, sum, median or trimmed-mean:k=1",
     .field = &JobOptions::aggregate,
     .needs = {{kServers}},
     .list = false},
};

constexpr Option kCollectives[] = {
    {.name = "algorithm",
     .value = "NAME",
     .help = "all-reduce algorithm: auto, direct, exchange, doubling, halving-doubling, ring or star",
     .field = &JobOptions::algorithm,
     .needs = {{kAllReduces}},
     .exchange_only = true},
    {.name = "tuning",
     .value = "FILE",
     .help = "a file of psring-bench all_reduce --tune, from which auto chooses the algorithm",
     .form = Form::derived,
     .field = &JobOptions::tuning,
     .needs = {{kAllReduces}},
     .exchange_only = true},
    {.name = "streams",
     .help = "sockets of each TCP link between workers",
     .form = Form::whole,
     .field = &JobOptions::streams,
     .check = CountUpTo{net::kMaxTcpStreams},
     .needs = {{{Feature::collectives, "has no links between workers"}}},
     .exchange_only = true},
    {.name = "bucket",
     .help = "ddp, zero1: bytes of gradients that are reduced together",
     .form = Form::bytes,
     .field = &JobOptions::bucket_bytes,
     .check = CountUpTo{kMostBucketBytes},
     .needs = {{kBuckets}},
     .exchange_only = true,
     .json = "bucket_bytes"},
    {.name = "bucket-order",
     .value = "ORDER",
     .help = "ddp, zero1: reverse (as backward completes the units) or forward",
     .field = &JobOptions::bucket_order,
     .check = OneOf{"reverse", "forward"},
     .needs = {{kBuckets}},
     .exchange_only = true},
    {.name = "overlap",
     .help = "ddp, zero1: on: reduce during backward; off: reduce after backward",
     .form = Form::on_off,
     .field = &JobOptions::overlap,
     .needs = {{kBuckets}},
     .exchange_only = true},
    {.name = "prefetch",
     .help = "zero3, ps-zero3: units that are gathered ahead, 0, 1 or 2",
     .form = Form::whole,
     .field = &JobOptions::prefetch,
     .check = AtMost{2, "0, 1 or 2"},
     .needs = {{kGathers}},
     .exchange_only = true},
    {.name = "reshard-after-forward",
     .help = "zero3, ps-zero3: on: drop gathered parameters after forward; off: keep them until backward",
     .form = Form::on_off,
     .field = &JobOptions::reshard_after_forward,
     .needs = {{kGathers}},
     .exchange_only = true},
    {.name = "share-host-parameters",
     .help = "zero3: keep parameters once in the host's shared memory, and read them there instead of gathering",
     .form = Form::flag,
     .field = &JobOptions::share_host_parameters,
     .needs = {{{Feature::gathered_from_workers, "gathers no parameters from workers"}}},
     .exchange_only = true},
    {.name = "shard-group",
     .value = "host|N",
     .help = "zero1, zero2, zero3: shard among the workers of a host, or among N workers, with replicas between the "
             "groups (all workers)",
     .field = &JobOptions::shard_group,
     .needs = {{{Feature::shards_at_workers, "has nothing cut among workers"}}},
     .exchange_only = true},
};

}  // namespace

std::span<const Option> process_options() { return kProcesses; }
std::span<const Option> update_options() { return kUpdates; }
std::span<const Option> collective_options() { return kCollectives; }

}  // namespace psring::options
