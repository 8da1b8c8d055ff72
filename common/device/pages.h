#pragma once

#include <algorithm>
#include <cstddef>

#include <psring/common/base/range.h>

namespace psring {

// A page has 4 KiB on x86-64. The kernel of an aarch64 chooses 4, 16 or 64 KiB when it is built.

/// The largest page of a supported processor, in bytes. Layouts in shared memory are cut at its multiples, so that they
/// are the same on all hosts.
inline constexpr std::size_t kLargestPage = 65536;

/// The size of this host's pages, in bytes.
std::size_t page_bytes();

/// Returns the size of a huge page: a page of the table holds an 8-byte entry for each page that the huge page
/// replaces. 2, 32 and 512 MiB for pages of 4, 16 and 64 KiB.
constexpr std::size_t huge_page_bytes(std::size_t page) { return page / 8 * page; }

/// Returns the alignment of a mapping's first byte with which the host can use the largest pages that fit into it.
/// aarch64 with pages of 16 or 64 KiB also keeps aligned 2 MiB as one entry of its translation cache.
constexpr std::size_t mapping_alignment(std::size_t bytes, std::size_t page) {
  constexpr std::size_t kRun = std::size_t{2} << 20;
  const std::size_t huge = huge_page_bytes(page);
  return bytes >= huge ? huge : bytes >= kRun ? kRun : page;
}

/// Returns the pages that lie whole within these bytes of a mapping. Empty if no page does.
constexpr Range whole_pages(Range bytes, std::size_t page) {
  const std::size_t begin = round_up(bytes.begin, page);
  return {begin, std::max(begin, bytes.end / page * page)};
}

}  // namespace psring
