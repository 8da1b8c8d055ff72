// Files of tensors: the header as it is, or with the right length in front, and what is read by it.
#include <vector>

#include <psring/tests/fuzz/files.h>
#include <psring/worker/model/safetensors.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  std::vector<std::byte> bytes;
  if (in.below(4) != 0) {  // the right length of a header
    const std::size_t data = in.byte();
    const auto rest = in.rest();
    const std::uint64_t header = rest.size() - std::min(data, rest.size());
    const auto length = std::as_bytes(std::span(&header, 1));
    bytes.assign(length.begin(), length.end());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
  } else {
    const auto rest = in.rest();
    bytes.assign(rest.begin(), rest.end());
  }
  const MemoryFile file(bytes);
  refuses(ErrorKind::data, [&] {
    const worker::TensorFile tensors(file.path());
    for (const worker::TensorEntry& entry : tensors.entries()) {
      require(entry.begin_bytes + entry.size_bytes <= bytes.size(), "a tensor within the file");
      require(tensors.find(entry.name) != nullptr, "a tensor of this name");
      std::vector<float> values(entry.elements);
      refuses(ErrorKind::data, [&] { tensors.read(entry, 0, values); });
    }
    const TensorSpec wanted{"a", {2, 2}, {}};
    worker::match_tensors(tensors, {&wanted, 1});
  });
}
