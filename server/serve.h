#ifndef PSRING_SERVER_SERVE_H
#define PSRING_SERVER_SERVE_H

/* A server of psring in a C program, with handles of its own: what it does with the values of a key that workers push
 * (psring_table_add of psring/c.h, or KvClient). Link psring::server. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A push of `width` values to a key: changes its values, and its `state` floats, which are zeros before the key's first
 * push. `lr` is the push's rate. Called by one thread. */
typedef void psring_push_handle(void* context, float* values, float* state, const float* pushed, size_t width,
                                float lr);

typedef struct psring_handle {
  const char* name; /* that --table-optimizer names */
  psring_push_handle* push;
  void* context; /* for `push` */
  size_t state;  /* floats beside the values of a key */
} psring_handle;

/* Joins the job whose coordinator is at `endpoint` (HOST:PORT) as the server `rank`, or as any if it is -1, with the
 * key of `key_file`, and serves until the job has ended. Returns 0, or the exit status that psring-server would have,
 * and prints the reason on standard error. */
int psring_serve(const char* endpoint, const char* key_file, int64_t rank, const psring_handle* handles, size_t count);

#ifdef __cplusplus
}
#endif

#endif
