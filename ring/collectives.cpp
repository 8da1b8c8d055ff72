#include <cstring>
#include <numeric>

#include <psring/common/base/text/error.h>
#include <psring/ring/collectives.h>

namespace psring::ring {
namespace {

void copy(ConstVector from, Vector to) {
  if (from.count != to.count || from.type != to.type)
    fail(ErrorKind::usage, "{} {} where {} {} are due", from.count, to_string(from.type), to.count, to_string(to.type));
  if (from.count > 0) std::memcpy(to.data, from.data, from.bytes());
}

std::vector<std::size_t> alike(const ProcessGroup& group, std::size_t count) {
  return std::vector<std::size_t>(group.size(), count);
}

void require_sizes(const ProcessGroup& group, std::span<const std::size_t> sizes, std::size_t whole, std::size_t mine) {
  if (sizes.size() != group.size()) fail(ErrorKind::usage, "{} sizes in a group of {}", sizes.size(), group.size());
  if (std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) != whole || sizes[group.rank()] != mine)
    fail(ErrorKind::usage, "the sizes of the parts are not those of the vectors");
}

Range part_of(const ProcessGroup& group, const BasicVector<const std::byte>& whole, std::size_t rank) {
  if (whole.count % group.size() != 0)
    fail(ErrorKind::usage, "{} elements cannot be cut among {} ranks", whole.count, group.size());
  const std::size_t each = whole.count / group.size();
  return {rank * each, (rank + 1) * each};
}

}  // namespace

void reduce_to(ProcessGroup& group, Vector data, const ReduceOp& op, std::size_t root) {
  Parts parts(group.size());
  if (root >= group.size()) fail(ErrorKind::usage, "rank {} of a group of {}", root, group.size());
  parts[root].push_back({0, data.count});
  group.reduce_scatter(data, parts, op).wait();
}

void reduce_scatter(ProcessGroup& group, Vector in, Vector out, const ReduceOp& op) {
  reduce_scatter(group, in, out, alike(group, out.count), op);
}

void reduce_scatter(ProcessGroup& group, Vector in, Vector out, std::span<const std::size_t> sizes,
                    const ReduceOp& op) {
  require_sizes(group, sizes, in.count, out.count);
  const Parts parts = parts_of_sizes(sizes);
  group.reduce_scatter(in, parts, op).wait();
  copy(in.part(parts[group.rank()].front()), out);
}

void all_gather(ProcessGroup& group, ConstVector in, Vector out) { all_gather(group, in, out, alike(group, in.count)); }

void all_gather(ProcessGroup& group, ConstVector in, Vector out, std::span<const std::size_t> sizes) {
  require_sizes(group, sizes, out.count, in.count);
  const Parts parts = parts_of_sizes(sizes);
  copy(in, out.part(parts[group.rank()].front()));
  group.all_gather(out, parts).wait();
}

void gather(ProcessGroup& group, ConstVector in, Vector out, std::size_t root) {
  if (group.rank() != root) return group.send(in, root).wait();
  std::vector<Work> works;
  for (std::size_t r = 0; r < group.size(); ++r) {
    const Vector part = out.part(part_of(group, out, r));
    if (r == root)
      copy(in, part);
    else
      works.push_back(group.recv(part, r));
  }
  for (Work& work : works) work.wait();
}

void scatter(ProcessGroup& group, ConstVector in, Vector out, std::size_t root) {
  if (group.rank() != root) return group.recv(out, root).wait();
  std::vector<Work> works;
  for (std::size_t r = 0; r < group.size(); ++r) {
    const ConstVector part = in.part(part_of(group, in, r));
    if (r == root)
      copy(part, out);
    else
      works.push_back(group.send(part, r));
  }
  for (Work& work : works) work.wait();
}

void all_to_all(ProcessGroup& group, ConstVector in, Vector out) {
  std::vector<Work> works;
  const std::size_t n = group.size();
  copy(in.part(part_of(group, in, group.rank())), out.part(part_of(group, out, group.rank())));
  // Each rank begins with its neighbour, so that not all send to the same one.
  for (std::size_t i = 1; i < n; ++i) {
    const std::size_t to = (group.rank() + i) % n;
    const std::size_t from = (group.rank() + n - i) % n;
    works.push_back(group.recv(out.part(part_of(group, out, from)), from));
    works.push_back(group.send(in.part(part_of(group, in, to)), to));
  }
  for (Work& work : works) work.wait();
}

}  // namespace psring::ring
