// A program whose processes add up a vector:
//   psring keygen job.key
//   psring coordinator --strategy ddp --workers 2 --steps 1 --key job.key --listen 127.0.0.1:7000 &
//   ./all_reduce 127.0.0.1:7000 job.key &
//   ./all_reduce 127.0.0.1:7000 job.key
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <psring/ring/collectives.h>
#include <psring/ring/session.h>

using psring::ring::ReduceOp;

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fprintf(stderr, "usage: all_reduce HOST:PORT KEYFILE\n");
    return 2;
  }
  psring::ring::Session session({.endpoint = argv[1], .key_file = argv[2]});
  psring::ring::ProcessGroup& group = session.group();

  const std::span<float> vector = session.allocate(1000);  // in memory that the others read and write in place
  for (std::size_t i = 0; i < 1000; ++i) vector[i] = static_cast<float>(i * (group.rank() + 1));
  psring::ring::Work work = group.all_reduce(vector, ReduceOp::Kind::sum);  // there may be many under way
  work.wait();

  std::vector<float> firsts(group.size());  // any other memory will do, too
  const std::span<const float> mine = vector.subspan(1 + group.rank(), 1);
  psring::ring::all_gather(group, mine, std::span(firsts));
  std::printf("rank %zu of %zu: sum %g ... %g, gathered %g ... %g\n", group.rank(), group.size(), vector[1],
              vector[999], firsts.front(), firsts.back());
  session.finish();
} catch (const std::exception& error) {
  std::fprintf(stderr, "all_reduce: %s\n", error.what());
  return 1;
}
