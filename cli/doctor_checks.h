#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <time.h>

#include <psring/cli/doctor_judge.h>
#include <psring/cli/other_load.h>
#include <psring/common/net/address.h>

namespace psring::cli {

/// What a check looks at. Made before the first, as some say what passed since then.
struct Examination {
  std::size_t processes = 8;            ///< of a job on this host
  std::optional<net::Endpoint> peer{};  ///< another host that it is to have
  OtherLoad other_load{};
  timespec clock = now_of(CLOCK_MONOTONIC);
  timespec oscillator = now_of(CLOCK_MONOTONIC_RAW);

  static timespec now_of(clockid_t clock);
};

/// Does a launch look at it as well?
enum class AtLaunch : std::uint8_t { never, always, if_loopback };

/// A named look at one thing of this host: it really reads or tries it. Where it throws, the thing is missing, and
/// `cure` is what helps.
struct Check {
  const char* name;
  Judgement (*look)(const Examination& examination);
  const char* cure;
  AtLaunch at_launch = AtLaunch::never;
};

/// All of them, in the order in which they are shown; together some 1.5 s.
std::span<const Check> doctor_checks();

/// Returns what a check finds; a check that throws has failed.
Judgement judge(const Check& check, const Examination& examination);

}  // namespace psring::cli
