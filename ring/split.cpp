#include <algorithm>
#include <span>

#include <psring/ring/split.h>

namespace psring::ring {

Split agree_on_split(ProcessGroup& group, std::uint32_t colour, std::uint32_t key, std::uint32_t next_group) {
  constexpr std::size_t kWords = 3;  // from each rank: colour, key, next group
  std::vector<std::int64_t> words(kWords * group.size());
  const std::size_t mine = kWords * group.rank();
  words[mine] = colour;
  words[mine + 1] = key;
  words[mine + 2] = next_group;
  std::vector<Work> works;
  for (std::size_t r = 0; r < group.size(); ++r)
    works.push_back(group.start(broadcast_request(std::span(words).subspan(kWords * r, kWords), r)));
  for (Work& work : works) work.wait();

  Split split;
  for (std::size_t r = 0; r < group.size(); ++r) {
    split.id = std::max(split.id, static_cast<std::uint32_t>(words[kWords * r + 2]));
    if (words[kWords * r] == words[mine]) split.ranks.push_back(r);
  }
  std::stable_sort(split.ranks.begin(), split.ranks.end(),
                   [&](std::size_t a, std::size_t b) { return words[kWords * a + 1] < words[kWords * b + 1]; });
  split.rank =
      static_cast<std::size_t>(std::find(split.ranks.begin(), split.ranks.end(), group.rank()) - split.ranks.begin());
  split.next_group = split.id + 1;
  return split;
}

Split split_by_colours(std::span<const std::size_t> colours, std::size_t rank, std::uint32_t next_group) {
  Split split{.id = next_group, .ranks = {}, .next_group = next_group + 1};
  for (std::size_t r = 0; r < colours.size(); ++r) {
    if (colours[r] != colours[rank]) continue;
    if (r == rank) split.rank = split.ranks.size();
    split.ranks.push_back(r);
  }
  return split;
}

}  // namespace psring::ring
