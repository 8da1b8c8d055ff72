#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <time.h>

#include <psring/cli/doctor/doctor_judge.h>
#include <psring/cli/train/other_load.h>
#include <psring/common/net/address.h>

namespace psring::cli {

/// The inputs of the checks. Make it before the first check, because some checks measure the time since then.
struct Examination {
  std::size_t processes = 8;            ///< processes of a job on this host
  std::optional<net::Endpoint> peer{};  ///< another host of the job
  OtherLoad other_load{};
  timespec clock = now_of(CLOCK_MONOTONIC);
  timespec oscillator = now_of(CLOCK_MONOTONIC_RAW);

  static timespec now_of(clockid_t clock);
};

/// Whether a launch runs the check as well.
enum class AtLaunch : std::uint8_t { never, always, if_loopback };

/// A named check of one property of this host, which really reads or tries it. If it throws, the property is missing,
/// and `cure` says how to fix it.
struct HostCheck {
  const char* name;
  Judgement (*look)(const Examination& examination);
  const char* cure;
  AtLaunch at_launch = AtLaunch::never;
};

// The checks of the network.
Judgement check_interfaces(const Examination& examination);
Judgement check_loopback_port(const Examination& examination);
Judgement check_outward_port(const Examination& examination);
Judgement check_port_range(const Examination& examination);
Judgement check_congestion_control(const Examination& examination);

/// Returns all checks in display order; together they take some 1.5 s.
std::span<const HostCheck> doctor_checks();

/// Runs a check and returns its result; a check that throws has failed.
Judgement judge(const HostCheck& check, const Examination& examination);

}  // namespace psring::cli
