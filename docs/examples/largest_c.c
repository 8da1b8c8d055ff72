/* The servers keep the largest value that workers have pushed to a key, in C:
 *   psring coordinator --workers 2 --servers 1 --steps 1 --consistency asp --table-optimizer largest ... &
 *   ./largest_c serve 127.0.0.1:7000 job.key &
 *   ./largest_c 4 127.0.0.1:7000 job.key & ./largest_c 9 127.0.0.1:7000 job.key */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psring/c.h>
#include <psring/server/serve.h>

static void largest(void* context, float* values, float* state, const float* pushed, size_t width, float lr) {
  (void)context, (void)lr, (void)width;
  if (state[0]++ == 0 || pushed[0] > values[0]) values[0] = pushed[0]; /* the state counts the pushes */
}

int main(int argc, char** argv) {
  const psring_handle handle = {.name = "largest", .push = largest, .state = 1};
  if (argc != 4) return 2;
  if (strcmp(argv[1], "serve") == 0) return psring_serve(argv[2], argv[3], -1, &handle, 1);
  const psring_join_options options = {.size = sizeof options, .endpoint = argv[2], .key_file = argv[3], .rank = -1};
  const psring_table_options values = {.size = sizeof values, .name = "values", .width = 1, .init = "constant:0"};
  const uint64_t key = 42, step = 1;
  const float pushed = strtof(argv[1], NULL);
  uint64_t first = 0;
  psring_job* job = NULL;
  psring_table* table = NULL;
  psring_rows* rows = NULL;
  float value = 0;
  const psring_bags bags = {.size = sizeof bags, .lookups = 1, .bags = 1};
  if (psring_join(&options, &job) || psring_table_open(job, &values, &table) || psring_table_start(job, &first) ||
      psring_table_add(table, &key, 1, &pushed) || psring_table_end_step(job, 1) || psring_table_wait(job, 60) ||
      psring_table_fetch(table, &key, 1, step, &rows) || psring_rows_wait(rows, 60) ||
      psring_rows_pool(rows, &bags, &value) || psring_leave(job, 60))
    return fprintf(stderr, "largest_c: %s\n", psring_last_error()), 1;
  printf("pushed %g, the largest is %s\n", pushed, value >= pushed ? "as large" : "smaller");
  return 0;
}
