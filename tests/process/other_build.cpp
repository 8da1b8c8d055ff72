// Makes the program that this file is linked into a process of another build of psring.
#include <psring/common/proc/build_id.h>

psring::BuildId psring::build_id() { return {"psring 0.0.7 (other)", "0123456789abcdef"}; }
