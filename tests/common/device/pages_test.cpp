// Pages of 4, 16 and 64 KiB.
#include <cstring>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include <psring/common/device/mapping.h>
#include <psring/common/device/pages.h>

using namespace psring;

namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kPages[] = {4 * kKiB, 16 * kKiB, 64 * kKiB};

}  // namespace

TEST_CASE("a huge page replaces as many pages as a page holds entries") {
  CHECK(huge_page_bytes(4 * kKiB) == 2 * kMiB);
  CHECK(huge_page_bytes(16 * kKiB) == 32 * kMiB);
  CHECK(huge_page_bytes(64 * kKiB) == 512 * kMiB);
}

TEST_CASE("a mapping is aligned to the largest pages that fit into it") {
  for (const std::size_t page : kPages) {
    CAPTURE(page);
    CHECK(mapping_alignment(1, page) == page);
    CHECK(mapping_alignment(2 * kMiB - 1, page) == page);
    CHECK(mapping_alignment(2 * kMiB, page) == 2 * kMiB);
    CHECK(mapping_alignment(huge_page_bytes(page), page) == huge_page_bytes(page));
    CHECK(mapping_alignment(std::size_t{64} << 30, page) == huge_page_bytes(page));
  }
  CHECK(mapping_alignment(512 * kMiB - 1, 64 * kKiB) == 2 * kMiB);
}

TEST_CASE("whole pages are those that begin and end within the bytes") {
  for (const std::size_t page : kPages) {
    CAPTURE(page);
    CHECK(whole_pages({0, 3 * page}, page) == Range{0, 3 * page});
    CHECK(whole_pages({1, 3 * page}, page) == Range{page, 3 * page});
    CHECK(whole_pages({1, 3 * page - 1}, page) == Range{page, 2 * page});
    for (const Range none : {Range{0, page - 1}, Range{1, page}, Range{1, 2 * page - 1}, Range{page + 1, page + 2}})
      CHECK(whole_pages(none, page).empty());
  }
}

TEST_CASE("the places that processes share begin on every host's pages") {
  CHECK(kLargestPage % page_bytes() == 0);
  for (const std::size_t page : kPages) CHECK(kLargestPage % page == 0);
}

TEST_CASE("a mapping has whole pages of this host, and gives them back") {
  const std::size_t page = page_bytes();
  CHECK(page == static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  const Mapping mapping(2 * page + 1);
  REQUIRE(mapping.size() == 3 * page);
  std::memset(mapping.data(), 7, mapping.size());
  mapping.discard({1, 2 * page + 1});  // the second page alone lies whole in these bytes
  for (std::size_t at = 0; at < mapping.size(); at += page) CHECK(mapping.data()[at] == std::byte(at == page ? 0 : 7));
  CHECK(Mapping(1).size() == page);
}
