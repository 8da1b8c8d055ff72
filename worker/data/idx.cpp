#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include <unistd.h>
#include <zlib.h>

#include <psring/common/base/system/file.h>
#include <psring/common/base/text/error.h>
#include <psring/worker/data/fingerprint.h>
#include <psring/worker/data/idx.h>

namespace psring::worker {
namespace {

/// Maximum expansion of a compressed byte (zlib's technical notes: 1032 to 1).
constexpr std::uint64_t kDeflateBound = 1032;

/// The content of an IDX file. zlib reads plain and compressed files alike.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), file_(nullptr, &gzclose) {
    const InputFile file(path);
    size_bytes_ = file.size_bytes();
    const int own = file.duplicate();
    file_.reset(gzdopen(own, "rb"));  // which closes `own` at its end
    if (!file_ && own >= 0) ::close(own);
    if (!file_) fail(ErrorKind::data, "{}: cannot open", path);
    gzbuffer(file_.get(), 1U << 17);
  }
  const std::string& path() const { return path_; }

  /// Reads the header of a byte array with `Dims` dimensions, and returns its extents.
  template <std::size_t Dims>
  std::array<std::uint32_t, Dims> header() {
    std::array<std::uint8_t, 4 * (Dims + 1)> bytes{};
    read(bytes, "header");
    std::array<std::uint32_t, Dims + 1> words{};
    for (std::size_t i = 0; i < bytes.size(); ++i) words[i / 4] = words[i / 4] << 8 | bytes[i];
    if (words[0] != 0x0800 + Dims)
      fail(ErrorKind::data, "{}: not an IDX file of bytes in {} dimensions: starts with {:08x}, expected {:08x}", path_,
           Dims, words[0], 0x0800 + Dims);
    std::array<std::uint32_t, Dims> extents{};
    std::copy(words.begin() + 1, words.end(), extents.begin());
    for (const std::uint32_t extent : extents)
      if (extent == 0) fail(ErrorKind::data, "{}: has no samples, or empty ones", path_);
    return extents;
  }

  /// Reads `count` * `each` bytes after the header, which must be the rest of the file. Checks the header's counts
  /// against the file's size before it allocates memory.
  std::vector<std::uint8_t> body(std::uint64_t count, std::uint64_t each) {
    const std::uint64_t factor = gzdirect(file_.get()) ? 1 : kDeflateBound;
    const std::uint64_t most = size_bytes_ * factor;
    if (count > most / each)
      fail(ErrorKind::data, "{}: truncated: its header claims {} x {} bytes, more than {} bytes of file can hold",
           path_, count, each, size_bytes_);
    std::vector<std::uint8_t> bytes(count * each);
    read(bytes, "body");
    std::uint8_t extra = 0;
    const int got = gzread(file_.get(), &extra, 1);  // at the end of the data, zlib verifies the checksum
    verify();
    if (got != 0) fail(ErrorKind::data, "{}: trailing bytes behind the {} that its header claims", path_, bytes.size());
    return bytes;
  }

 private:
  void read(std::span<std::uint8_t> out, const char* part) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // gzread counts in 32 bits
    while (!out.empty()) {
      const int got = gzread(file_.get(), out.data(), static_cast<unsigned>(std::min(out.size(), kMost)));
      verify();
      if (got <= 0) fail(ErrorKind::data, "{}: truncated: {} more bytes of its {} expected", path_, out.size(), part);
      out = out.subspan(static_cast<std::size_t>(got));
    }
  }
  void verify() {
    int error = Z_OK;
    const char* message = gzerror(file_.get(), &error);
    if (error == Z_BUF_ERROR) fail(ErrorKind::data, "{}: truncated: the gzip data ends too early", path_);
    if (error != Z_OK && error != Z_STREAM_END) fail(ErrorKind::data, "{}: corrupt: {}", path_, message);
  }

  std::string path_;
  std::uint64_t size_bytes_ = 0;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file_;
};

class IdxDataset final : public Dataset {
 public:
  IdxDataset(std::vector<std::uint8_t> pixels, std::vector<std::uint8_t> labels, std::size_t classes)
      : pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        cols_(pixels_.size() / labels_.size()),
        classes_(classes) {}

  std::size_t size() const override { return labels_.size(); }
  std::size_t input_cols() const override { return cols_; }
  std::size_t targets_per_sample() const override { return 1; }
  std::size_t classes() const override { return classes_; }

  void read(std::size_t index, const SampleMemory& to) const override {
    check(index < size() && to.input.size() == cols_ && to.classes.size() == 1, "read of sample {} of {}", index,
          size());
    const std::uint8_t* pixels = pixels_.data() + index * cols_;
    float* out = to.input.data();
    // Divides as PyTorch's ToTensor does: multiplication by 1/255 would give different floats.
    for (std::size_t i = 0; i < cols_; ++i) out[i] = static_cast<float>(pixels[i]) / 255.0F;
    to.classes[0] = labels_[index];
  }

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::uint8_t> labels_;
  std::size_t cols_;
  std::size_t classes_;
};

std::string plain_or_gz(const std::string& folder, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(folder) / name;
  std::error_code ignored;
  return std::filesystem::exists(plain, ignored) ? plain.string() : plain.string() + ".gz";
}

/// Loads the two files of a split. `cols`: required pixels per image; 0 accepts any number.
std::unique_ptr<Dataset> load_split(const std::string& folder, const std::string& split, std::size_t cols,
                                    std::size_t classes, std::size_t most_classes, const std::string& model) {
  IdxFile images(plain_or_gz(folder, split + "-images-idx3-ubyte"));
  const auto [count, rows, columns] = images.header<3>();
  const std::uint64_t each = std::uint64_t{rows} * columns;
  if (cols != 0 && each != cols)
    fail(ErrorKind::data, "{}: images of {} pixels, but the training images have {}", images.path(), each, cols);
  std::vector<std::uint8_t> pixels = images.body(count, each);

  IdxFile names(plain_or_gz(folder, split + "-labels-idx1-ubyte"));
  const auto [label_count] = names.header<1>();
  if (label_count != count)
    fail(ErrorKind::data, "{}: {} labels for the {} images of {}", names.path(), label_count, count, images.path());
  std::vector<std::uint8_t> labels = names.body(label_count, 1);
  if (classes == 0) {
    const auto largest = std::max_element(labels.begin(), labels.end());
    classes = std::size_t{*largest} + 1;
    if (most_classes != 0 && classes > most_classes)
      fail(ErrorKind::data, "{}: label {} of sample {} does not fit --model {}, whose {} classes are 0 to {}",
           names.path(), *largest, largest - labels.begin(), model, most_classes, most_classes - 1);
  }
  const auto bad = std::find_if(labels.begin(), labels.end(), [&](std::uint8_t label) { return label >= classes; });
  if (bad != labels.end())
    fail(ErrorKind::data, "{}: label {} of sample {} is not below {}, the number of classes", names.path(), *bad,
         bad - labels.begin(), classes);
  return std::make_unique<IdxDataset>(std::move(pixels), std::move(labels), classes);
}

}  // namespace

DataSplit load_idx(const std::string& folder, std::size_t classes, std::size_t most_classes, const std::string& model) {
  DataSplit split;
  split.train = load_split(folder, "train", 0, classes, most_classes, model);
  split.test = load_split(folder, "t10k", split.train->input_cols(), split.train->classes(), 0, model);
  split.fingerprint = fingerprint_of_both(*split.train, split.test.get());
  return split;
}

}  // namespace psring::worker
