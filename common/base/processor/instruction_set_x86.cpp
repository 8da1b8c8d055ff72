// Ends a process whose processor lacks instructions that the other sources of psring are compiled for (x86-64-v3), with
// one line, before a static initialiser can run such an instruction. This source alone is compiled for every x86-64. It
// calls nothing that is inline elsewhere: the linker might keep the copy of a source that is compiled for newer
// processors.

#include <cpuid.h>
#include <unistd.h>

namespace {

struct Part {
  const char* name;
  bool is_present;
};

void write_error(const char* text) {
  if (::write(STDERR_FILENO, text, __builtin_strlen(text)) < 0) return;  // nobody is left to tell
}

/// Registers of CPUID; all 0 for a leaf that the processor does not have.
struct Leaf {
  explicit Leaf(unsigned number) { __get_cpuid(number, &eax, &ebx, &ecx, &edx); }
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
};

}  // namespace

/// Runs before all static initialisers of the program or shared library. Every program that links psring::common
/// contains this function, since the library's link options require its name.
extern "C" [[gnu::constructor(101)]] void psring_check_instruction_set() {
  __builtin_cpu_init();  // Clang does not know all of these names, hence CPUID
  const Part parts[] = {{"AVX", __builtin_cpu_supports("avx") != 0},
                        {"AVX2", __builtin_cpu_supports("avx2") != 0},
                        {"BMI", __builtin_cpu_supports("bmi") != 0},
                        {"BMI2", __builtin_cpu_supports("bmi2") != 0},
                        {"F16C", (Leaf(1).ecx & bit_F16C) != 0},
                        {"FMA", __builtin_cpu_supports("fma") != 0},
                        {"LZCNT", (Leaf(0x80000001).ecx & bit_LZCNT) != 0},
                        {"MOVBE", (Leaf(1).ecx & bit_MOVBE) != 0}};
  bool is_complete = true;
  for (const Part& part : parts) {
    if (part.is_present) continue;
    write_error(is_complete ? "psring: this processor has no " : ", ");
    write_error(part.name);
    is_complete = false;
  }
  if (is_complete) return;
  write_error("; psring needs x86-64-v3, which Intel has since Haswell (2013) and AMD since Excavator (2015)\n");
  ::_exit(3);
}
