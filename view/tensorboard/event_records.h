#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace psring::view {

// The records of a TensorBoard event file. Each record is a TFRecord with one Event of TensorFlow's event.proto, whose
// values are those of its summary.proto. Field numbers follow the equals signs:
//
//   file       = record*
//   record     = length:u64 masked(length):u32 Event masked(Event):u32      little-endian
//   masked(x)  = rotate_right(CRC32C(x), 15) + 0xa282ead8                    modulo 2^32
//   Event      = wall_time:double=1 step:int64=2 (file_version:string=3 | summary:Summary=5 | session_log:SessionLog=7)
//   Summary    = (value:Value=1)*
//   Value      = tag:string=1 simple_value:float=2
//   SessionLog = status:enum=1

/// One value of a step, with the name of its curve.
struct Scalar {
  std::string tag;
  double value = 0;
};

/// Returns the first record of a file, with the version of its format. Times are seconds since 1970.
std::string version_record(double wall_time);

/// Returns the record of a session that starts with `step`. TensorBoard drops what earlier sessions of the run have
/// recorded of this step and later ones.
std::string start_record(double wall_time, std::uint64_t step);

/// Returns the record of a step's scalars.
std::string scalars_record(double wall_time, std::uint64_t step, std::span<const Scalar> scalars);

}  // namespace psring::view
