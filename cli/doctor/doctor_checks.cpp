#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <dnnl.h>
#include <sched.h>
#include <sodium.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include <psring/cli/doctor/doctor_checks.h>
#include <psring/cli/doctor/doctor_link.h>
#include <psring/cli/plan/bandwidth.h>
#include <psring/common/base/clock.h>
#include <psring/common/base/system/control_group.h>
#include <psring/common/base/system/file.h>
#include <psring/common/base/system/processors.h>
#include <psring/common/base/text/error.h>
#include <psring/common/device/device.h>
#include <psring/common/device/kernels.h>
#include <psring/common/device/mapping.h>
#include <psring/common/device/pages.h>
#include <psring/common/net/tcp/stream_cipher.h>

namespace psring::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kMeasure = std::chrono::milliseconds(60);  // time for each measurement
constexpr const char* kTransparentHugePages = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

std::string first_line(const std::string& file) {
  const std::string text = read_whole(file);
  return text.substr(0, text.find('\n'));
}

/// Returns the value of NAME in a text of lines "NAME: VALUE"; "" if no line has the name.
std::string value_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != name) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

/// Returns the number at the begin of such a value; 0 if there is none.
std::uint64_t number_of(const std::string& text, const std::string& name) {
  return std::strtoull(value_of(text, name).c_str(), nullptr, 10);
}

rlimit limit_of(__rlimit_resource_t resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) fail(ErrorKind::data, "cannot read the limit: {}", std::strerror(errno));
  return limit;
}

/// Returns nothing if there is no limit.
std::optional<std::uint64_t> soft_limit(__rlimit_resource_t resource) {
  const rlim_t limit = limit_of(resource).rlim_cur;
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(limit);
}

std::size_t count_of(const cpu_set_t& allowed) {
  if (CPU_COUNT(&allowed) == 0) fail(ErrorKind::data, "cannot read the processor affinity");
  return static_cast<std::size_t>(CPU_COUNT(&allowed));
}

// Memory.

constexpr std::size_t kTrialBytes = std::size_t{16} << 20;

std::uint64_t available_bytes() {
  const std::string text = read_whole("/proc/meminfo");
  if (value_of(text, "MemAvailable").empty()) fail(ErrorKind::data, "/proc/meminfo does not contain MemAvailable");
  return number_of(text, "MemAvailable") << 10;
}

/// Checks that two mappings of one memory file share their content.
Judgement shared_memory(const Examination&) {
  const Fd file = make_memory_file("psring-doctor", kTrialBytes);
  const Mapping writer(file, checked_size(file));
  const Mapping reader(file, checked_size(file));
  std::memset(writer.data(), 0x5a, kTrialBytes);
  if (std::memcmp(reader.data(), writer.data(), kTrialBytes) != 0 || reader.data()[kTrialBytes / 2] != std::byte{0x5a})
    fail(ErrorKind::data, "two mappings of one memory file differ");
  return {.figure = fmt::format("{} MiB of a memory file, mapped twice, written and read; /dev/shm is not needed",
                                kTrialBytes >> 20)};
}

/// Returns the word in brackets: "never" of "always within_size advise [never]".
std::string chosen_word(const std::string& words) {
  const std::size_t open = words.find('[');
  return open == std::string::npos ? words : words.substr(open + 1, words.find(']') - open - 1);
}

Judgement huge_pages(const Examination&) {
  const Fd file = make_memory_file("psring-doctor-huge", kTrialBytes);
  const Mapping memory(file, kTrialBytes);
  std::memset(memory.data(), 1, kTrialBytes);
  const std::string all = read_whole("/proc/self/smaps");
  const std::size_t begin = all.find("psring-doctor-huge");
  const std::uint64_t kib = begin == std::string::npos ? 0 : number_of(all.substr(begin), "ShmemPmdMapped");
  return judge_huge_pages(kTrialBytes, kib << 10,
                          fs::exists(kTransparentHugePages) ? chosen_word(first_line(kTransparentHugePages)) : "never",
                          huge_page_bytes(page_bytes()));
}

Judgement memory_size(const Examination& examination) {
  return judge_memory(available_bytes(), control_group_limits().memory_bytes, examination.processes);
}

Judgement size_limits(const Examination&) { return judge_size_limits(soft_limit(RLIMIT_AS), soft_limit(RLIMIT_FSIZE)); }

Judgement memory_speed(const Examination&) {
  const std::size_t threads = usable_processors();
  constexpr std::uint64_t kBeyondCaches = std::size_t{128} << 20;
  const std::uint64_t available = available_bytes();
  // The check must be safe on a host or in a container with little memory.
  const std::size_t bytes =
      std::min(kBeyondCaches, std::min(available, control_group_limits().memory_bytes.value_or(available)) / 8);
  return judge_memory_speed(MemoryBandwidth(1).bytes_per_second(bytes),
                            MemoryBandwidth(threads).bytes_per_second(bytes), threads);
}

// Limits.

Judgement open_files(const Examination& examination) {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  return judge_open_files(limit.rlim_cur, limit.rlim_max, examination.processes);
}

/// Counts the threads of all processes of this user, as RLIMIT_NPROC does.
std::uint64_t threads_of_user() {
  std::uint64_t threads = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "status");  // empty: not a process, or a process that has ended
    const std::string text(std::istreambuf_iterator<char>(in), {});
    if (!text.empty() && number_of(text, "Uid") == ::getuid()) threads += number_of(text, "Threads");
  }
  return threads;
}

Judgement tasks(const Examination& examination) {
  std::optional<std::uint64_t> left = control_group_limits().tasks_left;
  if (const auto limit = soft_limit(RLIMIT_NPROC); limit && ::geteuid() != 0) {  // root is not bound by this limit
    const std::uint64_t present = threads_of_user();
    left = std::min(left.value_or(UINT64_MAX), *limit - std::min(*limit, present));
  }
  return judge_tasks(left, 0, examination.processes);
}

// Processors.

Judgement processors(const Examination&) {
  return judge_processors(count_of(allowed_processors()), static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN)),
                          control_group_limits().processors);
}

std::set<std::string> processor_features() {
  std::istringstream words(value_of(read_whole("/proc/cpuinfo"), "flags"));
  return {std::istream_iterator<std::string>(words), {}};
}

Judgement vector_units(const Examination&) { return judge_vector_units(processor_features()); }

/// Calls `body` repeatedly for a while and returns its rate per second. `amount`: amount of work per call.
double rate_of(double amount, const std::function<void()>& body) {
  const SystemClock clock;
  body();  // the first call compiles code and touches memory
  const Moment start = clock.now();
  std::size_t times = 0;
  for (; times == 0 || clock.now() - start < kMeasure; ++times) body();
  return amount * static_cast<double>(times) / seconds(clock.now() - start);
}

Judgement products(const Examination&) {
  constexpr std::size_t kSide = 512;
  const std::vector<float> a(kSide * kSide, 1.0F);
  std::vector<float> c(kSide * kSide);
  const auto flops = [&](DType operands) {
    const auto kernels = make_cpu_kernels(1, operands);
    return rate_of(2.0 * kSide * kSide * kSide, [&] {
      kernels->gemm({kSide, kSide, kSide}, 1, a.data(), a.data(), 0, c.data());
    });
  };
  const auto features = processor_features();
  return judge_products(flops(DType::f32), flops(DType::bf16),
                        features.contains("avx512_bf16") || features.contains("amx_bf16"));
}

// Libraries.

Judgement libraries(const Examination&) {
  int major = 0;
  int minor = 0;
  int patch = 0;
  ::zmq_version(&major, &minor, &patch);
  const dnnl_version_t* dnnl = ::dnnl_version();
  if (::sodium_init() < 0) fail(ErrorKind::data, "libsodium cannot be initialised");
  return {.figure = fmt::format("oneDNN {}.{}.{}, ZeroMQ {}.{}.{}, libsodium {}", dnnl->major, dnnl->minor, dnnl->patch,
                                major, minor, patch, ::sodium_version_string())};
}

Judgement curve(const Examination&) {
  char public_key[41] = {};
  char secret_key[41] = {};
  if (::zmq_has("curve") == 0 || ::zmq_curve_keypair(public_key, secret_key) != 0)
    fail(ErrorKind::data, "ZeroMQ was built without CURVE");
  return {.figure = "ZeroMQ supports CURVE and made a key pair"};
}

Judgement encryption(const Examination&) {
  constexpr std::size_t kChunk = std::size_t{256} << 10;  // the same as on a link
  net::Mac key{};
  net::Sealer sealer(key);
  net::Opener opener(key, sealer.head());
  const std::vector<std::byte> plain(kChunk, std::byte{7});
  std::vector<std::byte> sealed(kChunk + net::kSealBytes);
  std::vector<std::byte> opened(kChunk);
  const double bytes_per_s = rate_of(kChunk, [&] {
    sealer.seal(plain, sealed);
    opener.open(sealed, opened);
  });
  if (opened != plain) fail(ErrorKind::data, "decryption does not return the original bytes");
  return judge_encryption(bytes_per_s);
}

/// Returns the rate of many copies.
double copy_rate(Device& device, const void* from, void* to, std::size_t bytes) {
  constexpr std::size_t kCopies = 8;
  const SystemClock clock;
  device.copy_bytes(from, to, bytes);
  device.wait(device.mark());
  const Moment start = clock.now();
  for (std::size_t i = 0; i < kCopies; ++i) device.copy_bytes(from, to, bytes);
  device.wait(device.mark());
  return static_cast<double>(kCopies * bytes) / seconds(clock.now() - start);
}

GpuFigures look_at_gpu(std::size_t index) {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const std::unique_ptr<Device> device = make_cuda_device(index);
  const Device::MemoryUse use = device->memory();
  const std::shared_ptr<std::byte> here = device->allocate_pinned(kBytes);
  std::byte* const there = device->allocate(kBytes, Category::activations);
  return {.name = device->name(),
          .free_bytes = use.free_bytes,
          .total_bytes = use.total_bytes,
          .to_device_bytes_per_s = copy_rate(*device, here.get(), there, kBytes),
          .to_host_bytes_per_s = copy_rate(*device, there, here.get(), kBytes)};
}

Judgement accelerators(const Examination&) {
  std::size_t count = 0;
  std::string reason = "this host has none";
  try {
    count = cuda_devices();
  } catch (const Error& error) {
    reason = error.what();
  }
  std::vector<GpuFigures> gpus;
  for (std::size_t index = 0; index < count; ++index) {
    try {
      gpus.push_back(look_at_gpu(index));
    } catch (const Error& error) {
      gpus.push_back({.trouble = error.what()});
    }
  }
  return judge_accelerators(gpus, reason, fs::exists("/dev/nvidiactl"));
}

// Time.

Judgement clock_readings(const Examination&) {
  constexpr std::size_t kReadings = 20'000;  // per processor
  const std::string source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const cpu_set_t allowed = allowed_processors();
  const std::size_t processors = count_of(allowed);
  std::size_t backwards = 0;
  double seconds_per_look = 0;
  // A separate thread, which moves from processor to processor.
  std::jthread([&] {
    const SystemClock clock;
    Moment last = clock.now();
    Nanoseconds took{0};
    for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ::sched_setaffinity(0, sizeof one, &one);
      const Moment start = clock.now();
      for (std::size_t look = 0; look < kReadings; ++look) {
        const Moment now = clock.now();
        if (now < last) ++backwards;
        last = now;
      }
      took += last - start;
    }
    seconds_per_look = seconds(took) / static_cast<double>(kReadings * processors);
  }).join();
  return judge_clock(source, seconds_per_look, backwards, kReadings * processors);
}

double between(const timespec& from, const timespec& to) {
  return static_cast<double>(to.tv_sec - from.tv_sec) + 1e-9 * static_cast<double>(to.tv_nsec - from.tv_nsec);
}

Judgement steadiness(const Examination& examination) {
  const double clock = between(examination.clock, Examination::now_of(CLOCK_MONOTONIC));
  const double oscillator = between(examination.oscillator, Examination::now_of(CLOCK_MONOTONIC_RAW));
  return judge_steadiness(clock / oscillator - 1);
}

Judgement other_load(const Examination& examination) { return judge_other_load(examination.other_load.processors()); }

Judgement loopback_speed(const Examination&) {
  return judge_loopback(measure_loopback(std::chrono::milliseconds(150)));
}

constexpr const char* kLinux = "psring runs on Linux, with /proc and /sys mounted";

/// The check of open files comes first: without descriptors the other checks fail with misleading errors.
constexpr HostCheck kChecks[] = {
    {"open files", open_files, kLinux, AtLaunch::always},
    {"interfaces", check_interfaces, "ip link set lo up; ip addr"},
    {"loopback port", check_loopback_port, "ip link set lo up; allow 127.0.0.1 or ::1 in the packet filter",
     AtLaunch::if_loopback},
    {"outward port", check_outward_port,
     "add a route to the other host (ip route), and its local address to an interface (ip addr)"},
    {"port range", check_port_range, kLinux},
    {"congestion control", check_congestion_control, kLinux},
    {"shared memory", shared_memory, "allow memfd_create and fcntl seals (seccomp), free memory; or --transport tcp"},
    {"huge pages", huge_pages, "see shared memory"},
    {"memory size", memory_size, kLinux, AtLaunch::always},
    {"size limits", size_limits, kLinux, AtLaunch::always},
    {"threads", tasks, kLinux, AtLaunch::always},
    {"processors", processors, kLinux},
    {"vector units", vector_units, kLinux},
    {"matrix products", products, "install another build of oneDNN (libdnnl)"},
    {"libraries", libraries, "reinstall libsodium; its random numbers need getrandom or /dev/urandom"},
    {"CURVE", curve, "install a libzmq with libsodium, such as Debian's libzmq5: control links need CURVE"},
    {"encryption", encryption, "reinstall libsodium"},
    {"accelerators", accelerators, kLinux},
    {"clock", clock_readings, kLinux},
    {"memory speed", memory_speed, "free some memory, and remove size limits"},
    {"loopback speed", loopback_speed, "allow connections to 127.0.0.1 or ::1 in the packet filter"},
    {"clock steadiness", steadiness, kLinux},
    {"other load", other_load, kLinux},
};

}  // namespace

timespec Examination::now_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now;
}

std::span<const HostCheck> doctor_checks() { return kChecks; }

Judgement judge(const HostCheck& check, const Examination& examination) {
  try {
    return check.look(examination);
  } catch (const std::exception& exception) {
    return {.level = Level::fail, .figure = to_error(exception).what(), .cure = check.cure};
  }
}

}  // namespace psring::cli
