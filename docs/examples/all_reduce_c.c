/* all_reduce.cpp in C; processes of both may share a job:
 *   psring keygen job.key
 *   psring coordinator --strategy ddp --workers 2 --steps 1 --key job.key --listen 127.0.0.1:7000 &
 *   ./all_reduce_c 127.0.0.1:7000 job.key & ./all_reduce_c 127.0.0.1:7000 job.key */
#include <stdio.h>

#include <psring/c.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: all_reduce_c HOST:PORT KEYFILE\n");
    return 2;
  }
  const psring_join_options options = {
      .size = sizeof options, .endpoint = argv[1], .key_file = argv[2], .rank = -1};
  psring_job* job = NULL;
  psring_work* work = NULL;
  void* memory = NULL;
  if (psring_join(&options, &job) || psring_allocate(job, 1000 * sizeof(float), &memory)) goto failed;
  psring_group* group = psring_world(job);
  float* vector = memory;
  for (size_t i = 0; i < 1000; ++i) vector[i] = (float)(i * (psring_rank(group) + 1));
  if (psring_all_reduce(group, vector, 1000, PSRING_F32, PSRING_SUM, &work) || psring_wait(work, 60)) goto failed;
  printf("rank %zu of %zu: sum %g ... %g\n", psring_rank(group), psring_size(group), vector[1], vector[999]);
  if (psring_leave(job, 60)) goto failed;
  psring_free(job);
  return 0;

failed:
  fprintf(stderr, "all_reduce_c: %s\n", psring_last_error());
  return 1;
}
