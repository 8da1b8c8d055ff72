// Ends a process whose processor lacks the instructions for CRC-32C, which ARMv8.0 leaves optional, with one line. It
// runs before all static initialisers; see instruction_set_x86.cpp.

#include <sys/auxv.h>
#include <unistd.h>

extern "C" [[gnu::constructor(101)]] void psring_check_instruction_set() {
  constexpr unsigned long kCrc32 = 1UL << 7;  // HWCAP_CRC32
  if ((::getauxval(AT_HWCAP) & kCrc32) != 0) return;
  constexpr char kText[] = "psring: this processor has no CRC32 instructions, which ARMv8.1 and newer have\n";
  if (::write(STDERR_FILENO, kText, sizeof kText - 1) < 0) ::_exit(3);  // nobody is left to tell
  ::_exit(3);
}
