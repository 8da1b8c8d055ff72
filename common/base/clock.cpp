#include <thread>

#include <psring/common/base/clock.h>

namespace psring {

void SystemClock::sleep_until(Moment moment) const { std::this_thread::sleep_until(moment); }

}  // namespace psring
