#pragma once

namespace psring::cli {

/// What other programs take of the processors that we may run on while something of ours runs.
class OtherLoad {
 public:
  /// From now on.
  OtherLoad();
  /// Processors that were at work on average since then, but not for this process and its children that have ended;
  /// 0 where the system does not say.
  double processors() const;

 private:
  double busy_s_ = 0;
  double own_s_ = 0;
  double start_s_ = 0;
};

}  // namespace psring::cli
