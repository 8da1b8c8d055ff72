#include <psring/common/net/address.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/data_links.h>
#include <psring/common/proc/options/check.h>
#include <psring/common/proc/options/table.h>

// The network, the devices, failures and experiments.

namespace psring::options {
namespace {

constexpr Option kNetwork[] = {
    {.name = "transport",
     .value = "NAME",
     .help = "auto, shm (shared memory) or tcp",
     .field = &JobOptions::transport,
     .check = Parses{[](const std::string& text) { net::parse_way(text); }},
     .needs = {{{Feature::several_processes, "is one process"}}},
     .exchange_only = true,
     .in_programs = InPrograms::yes},
    {.name = "link",
     .value = "RATE,DELAY",
     .help = "shape TCP as if each process were a host with this network card: 1gbit or 1gbit,0.2ms",
     .field = &JobOptions::link,
     .check = Parses{[](const std::string& text) { net::parse_link(text); }},
     .needs = {{{Feature::several_processes, "is one process"}}},
     .everyday = true,
     .exchange_only = true,
     .in_programs = InPrograms::yes},
    {.name = "encrypt",
     .value = "WHEN",
     .help = "encryption of data links: on, off, or auto (off on loopback)",
     .field = &JobOptions::encrypt,
     .form = Form::derived,
     .exchange_only = true,
     .standard = "auto",
     .in_programs = InPrograms::yes},
};

constexpr Option kDevices[] = {
    {.name = "server-threads",
     .help = "compute threads of each server",
     .field = &JobOptions::server_threads,
     .check = CountUpTo{kMostThreads},
     .needs = {{{Feature::servers, "has no servers"}}},
     .exchange_only = true,
     .in_programs = InPrograms::with_servers},
    {.name = "device",
     .value = "cpu|cuda",
     .help = "device that workers compute on",
     .field = &JobOptions::device,
     .check = OneOf{"cpu", "cuda"},
     .everyday = true},
    {.name = "server-device",
     .value = "cpu|cuda",
     .help = "device that servers aggregate and update on",
     .field = &JobOptions::server_device,
     .check = OneOf{"cpu", "cuda"},
     .exchange_only = true,
     .in_programs = InPrograms::with_servers},
    {.name = "share-gpu",
     .help = "let several workers compute on one GPU, to teach and to test",
     .field = &JobOptions::share_gpu,
     .form = Form::flag,
     .exchange_only = true},
    {.name = "cuda-graphs",
     .help = "on: launch repeated kernels as one CUDA graph; off: launch each kernel alone",
     .field = &JobOptions::cuda_graphs,
     .exchange_only = true},
    {.name = "threads",
     .help = "compute threads of each worker",
     .field = &JobOptions::threads,
     .check = CountUpTo{kMostThreads}},
};

constexpr Option kFailures[] = {
    {.name = "heartbeat-timeout",
     .value = "SECONDS",
     .help = "silence after which a process is lost",
     .field = &JobOptions::heartbeat_timeout,
     .check = Seconds{0.1},
     .in_programs = InPrograms::yes},
    {.name = "max-restarts",
     .help = "lost processes that are started again; 0: the first loss ends the job",
     .field = &JobOptions::max_restarts,
     .check = AtMost{1'000'000},
     .exchange_only = true},
    {.name = "elastic",
     .value = "MIN:MAX",
     .help = "begin with MAX workers; if a lost worker cannot be started again, continue with fewer, at least MIN, and "
             "the same global batch",
     .field = &JobOptions::min_workers,
     .form = Form::derived,
     .needs = {{{Feature::several_processes, "is one process"}}},
     .exchange_only = true,
     .json = "min_workers",
     .standard = ""},
    {.name = "recovery",
     .value = "FROM",
     .help = "auto: continue with the values of the surviving servers or workers, if they have all of them; "
             "checkpoint: begin again from the newest checkpoint",
     .field = &JobOptions::recovery,
     .check = OneOf{"auto", "checkpoint"},
     .exchange_only = true,
     .in_programs = InPrograms::yes},
    {.name = "replicas",
     .help =
         "1: each server has a follower, which gets every update and, with --max-restarts, takes the place of a lost "
         "server",
     .field = &JobOptions::replicas,
     .check = AtMost{1, "0 or 1"},
     .needs = {{{Feature::servers, "has no servers"}}},
     .exchange_only = true},
    {.name = "join-timeout",
     .value = "SECONDS",
     .help = "time for all processes to join",
     .field = &JobOptions::join_timeout,
     .check = Seconds{0.1},
     .in_programs = InPrograms::yes},
    {.name = "op-timeout",
     .value = "SECONDS",
     .help = "longest wait for values; 0: as long as the peer lives",
     .field = &JobOptions::op_timeout,
     .check = Seconds{0},
     .in_programs = InPrograms::yes},
};

constexpr Option kExperiments[] = {
    {.name = "fault",
     .value = "FAULTS",
     .help = "faults to inject, separated by blanks: slow:worker:1=4x, jitter:worker:*=20%, link:worker:2=10mbit, "
             "drop:worker:1=1% (or duplicate, reorder, corrupt), kill:server:0@step=20, stop:worker:1@time=2s",
     .field = &JobOptions::fault,
     .exchange_only = true,
     .in_programs = InPrograms::yes},
    {.name = "events",
     .help = "on: record the events of all processes in events/, for psring report and psring trace: steps 0 to 9 and "
             "every tenth in detail, of the others when they began and ended",
     .field = &JobOptions::events,
     .exchange_only = true,
     .in_programs = InPrograms::yes},
    {.name = "trace",
     .help = "on: record all events, and write trace.json (Chrome trace, opens in Perfetto)",
     .field = &JobOptions::trace,
     .everyday = true,
     .exchange_only = true},
    {.name = "live",
     .value = "[ADDR:PORT]",
     .help = "show the run in a browser while it trains; without an address: a free port of 127.0.0.1",
     .field = &JobOptions::live,
     .check = Parses{[](const std::string& text) { net::resolve_endpoint("--live", text, 0); }},
     .everyday = true,
     .list = false,
     .exchange_only = true,
     .alone = "127.0.0.1:0"},
    {.name = "tensorboard",
     .help = "on: write the metrics in TensorBoard's format, too, to tensorboard/ in the run folder",
     .field = &JobOptions::tensorboard,
     .exchange_only = true},
};

}  // namespace

std::span<const Option> network_options() { return kNetwork; }
std::span<const Option> device_options() { return kDevices; }
std::span<const Option> failure_options() { return kFailures; }
std::span<const Option> experiment_options() { return kExperiments; }

}  // namespace psring::options
