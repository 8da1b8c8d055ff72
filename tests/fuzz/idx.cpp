// IDX files, plain or gzip: what the input has, with a right gzip around it or none.
#include <vector>

#include <zlib.h>

#include <psring/tests/fuzz/files.h>
#include <psring/worker/data/idx.h>

using namespace psring;

namespace {

std::vector<std::byte> compressed(std::span<const std::byte> plain) {
  z_stream stream{};
  fuzz::require(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
  std::vector<std::byte> out(plain.size() + 128);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  fuzz::require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// The magic number and the extents, big-endian, and the rest.
std::vector<std::byte> idx_of(fuzz::Input& in, std::size_t dims) {
  std::vector<std::byte> bytes{std::byte{0}, std::byte{0}, std::byte{8}, static_cast<std::byte>(dims)};
  for (std::size_t i = 0; i < dims; ++i) {
    const std::uint64_t extent = in.odd_number();
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::byte>(extent >> shift));
  }
  const auto body = in.take(in.byte());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

void write(fuzz::Input& in, const fuzz::Folder& folder, const std::string& name, std::size_t dims) {
  const std::uint8_t what = in.byte();
  std::vector<std::byte> bytes;
  if ((what & 1) == 0) {
    bytes = idx_of(in, dims);
  } else {
    const auto raw = in.take(in.byte());
    bytes.assign(raw.begin(), raw.end());
  }
  if ((what & 2) != 0) bytes = compressed(bytes);
  if ((what & 4) != 0 && !bytes.empty()) bytes[in.byte() % bytes.size()] ^= std::byte{in.byte()};
  if ((what & 8) != 0) bytes.resize(bytes.size() - in.byte() % (bytes.size() + 1));
  folder.write(name, bytes);
}

}  // namespace

void psring::fuzz::run(Input in) {
  static const Folder folder;
  const std::size_t classes = in.byte() % 12;
  for (const char* split : {"train", "t10k"}) {
    write(in, folder, std::string(split) + "-images-idx3-ubyte", 3);
    write(in, folder, std::string(split) + "-labels-idx1-ubyte", 1);
  }
  refuses(ErrorKind::data, [&] {
    const worker::DataSplit split = worker::load_idx(folder.path(), classes);
    std::vector<float> input(split.train->input_cols());
    std::int32_t target = 0;
    for (const worker::Dataset* set : {&*split.train, &*split.test}) {
      set->read(set->size() - 1, {input, {&target, 1}});
      require(target >= 0 && static_cast<std::size_t>(target) < set->classes(), "a label below the number of classes");
    }
  });
}
