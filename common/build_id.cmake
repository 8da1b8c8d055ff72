# Writes the source of psring::build_id (common/proc/build_id.h): the program's name, and a hash of the files in LIST, one a
# line, relative to ROOT. Paths and contents count, in the order of the list.
#   cmake -DOUTPUT=FILE -DPROGRAM=NAME -DROOT=FOLDER -DLIST=FILE -P build_id.cmake
file(STRINGS ${LIST} names)
set(all "")
foreach(name IN LISTS names)
  file(SHA256 ${ROOT}/${name} hash)
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 sources "${all}")
string(SUBSTRING ${sources} 0 16 sources)
file(WRITE ${OUTPUT} "// Written by common/build_id.cmake.
#include <psring/common/proc/build_id.h>

psring::BuildId psring::build_id() { return {\"${PROGRAM}\", \"${sources}\"}; }
")
