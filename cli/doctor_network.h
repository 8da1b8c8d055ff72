#pragma once

#include <psring/cli/doctor_checks.h>

namespace psring::cli {

/// The checks of the table (doctor_checks.h) that concern the network.

Judgement check_interfaces(const Examination& examination);
Judgement check_loopback_port(const Examination& examination);
Judgement check_outward_port(const Examination& examination);
Judgement check_port_range(const Examination& examination);
Judgement check_congestion_control(const Examination& examination);

}  // namespace psring::cli
