// A checkpoint's folder: its manifest and one shard, each with the right checksum, or whatever the input has.
#include <string>
#include <vector>

#include <psring/common/base/crc32c.h>
#include <psring/optim/checkpoint/checkpoint.h>
#include <psring/tests/fuzz/files.h>

using namespace psring;

namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void append(std::vector<std::byte>& bytes, const auto& number) {
  const auto more = std::as_bytes(std::span(&number, 1));
  bytes.insert(bytes.end(), more.begin(), more.end());
}

/// Four floats, then the index that the input has, then the footer that belongs to it.
std::vector<std::byte> shard_of(std::span<const std::byte> index) {
  std::vector<std::byte> bytes(16);
  bytes.insert(bytes.end(), index.begin(), index.end());
  append(bytes, std::uint64_t{index.size()});
  append(bytes, crc32c(index));
  append(bytes, std::uint32_t{0x4b435350});
  return bytes;
}

std::string with_checksum(std::string_view rest) {
  return fmt::format(R"({{"crc32c": "{:08x}",{})", crc32c(std::as_bytes(std::span(rest))), rest);
}

}  // namespace

void psring::fuzz::run(Input in) {
  static const Folder folder;
  const std::uint8_t what = in.byte();
  const auto first = in.take(in.number<std::uint16_t>());
  const std::vector<std::byte> shard = (what & 1) != 0 ? shard_of(first) : std::vector(first.begin(), first.end());
  folder.write("a.shard", shard);
  const std::string_view rest = in.text();
  if ((what & 4) != 0 && (what & 1) != 0) {  // a manifest that names the shard as it is
    const std::string tail =
        fmt::format(R"(, "shards": [{{"file": "a.shard", "bytes": {}, "crc32c": {}}}]}})", shard.size(), crc32c(first));
    folder.write(optim::kManifest, bytes_of(with_checksum(std::string(rest) + tail)));
  } else {
    folder.write(optim::kManifest, bytes_of((what & 2) != 0 ? with_checksum(rest) : std::string(rest)));
  }
  refuses(ErrorKind::data, [&] {
    const optim::ShardFile file(folder.path() + "/a.shard");
    std::vector<float> out;
    for (const optim::Segment& segment : file.segments()) {
      require(segment.offset_bytes + segment.range.size() * sizeof(float) <= shard.size(), "a segment within the file");
      out.resize(segment.range.size());
      refuses(ErrorKind::data, [&] { file.read(segment, segment.range, out); });
    }
  });
  refuses(ErrorKind::data, [&] {
    const optim::Checkpoint checkpoint(folder.path());
    const Layout layout = make_layout({{"u", {{{"a", {2, 2}, {}}, 0}}}}, 1);
    std::vector<float> values(layout.units[0].elements);
    refuses(ErrorKind::data, [&] {
      checkpoint.read(layout.units[0], {0, values.size()}, optim::kValues, values);
      checkpoint.read(layout.units[0], {0, values.size()}, optim::slot_array(0), values);
    });
    checkpoint.verify();
  });
}
