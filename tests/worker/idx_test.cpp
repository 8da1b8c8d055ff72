// Fashion-MNIST and other IDX files are read, plain or compressed; bad files are refused by name.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <numeric>

#include <catch2/catch.hpp>
#include <sys/stat.h>
#include <zlib.h>

#include <psring/common/base/text/error.h>
#include <psring/tests/support/temporary_folder.h>
#include <psring/tests/worker/data_samples.h>
#include <psring/tests/worker/idx_folder.h>
#include <psring/worker/data/idx.h>

using namespace psring;
using namespace psring::worker;
using namespace psring::test;

namespace {

std::string gzip(const std::string& bytes, const std::string& path) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return read_file(path);
}

}  // namespace

TEST_CASE("Fashion-MNIST is read whole") {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    std::puts("SKIPPED: the package dataset-fashion-mnist is not installed");
    return;
  }
  const DataSplit split = make("fashion-mnist", {.input_cols = 784, .classes = 10, .model = "mlp:784-10"});
  CHECK(split.train->size() == 60000);
  CHECK(split.test->size() == 10000);
  CHECK(split.train->classes() == 10);
  std::vector<std::int32_t> first;
  for (std::size_t i = 0; i < 5; ++i) first.push_back(sample(*split.train, i).targets[0]);
  CHECK(first == std::vector<std::int32_t>{9, 0, 0, 3, 0});
  CHECK(sample(*split.test, 0).targets[0] == 9);

  std::map<std::int32_t, int> histogram;
  float least = 1;
  float most = 0;
  double sum = 0;
  for (std::size_t i = 0; i < split.train->size(); ++i) {
    const Sample s = sample(*split.train, i);
    ++histogram[s.targets[0]];
    least = std::min(least, *std::min_element(s.input.begin(), s.input.end()));
    most = std::max(most, *std::max_element(s.input.begin(), s.input.end()));
    sum += std::accumulate(s.input.begin(), s.input.end(), 0.0);
  }
  CHECK(least == 0);
  CHECK(most == 1);
  CHECK(sum / (60000.0 * 784) == Approx(0.2860).margin(0.0001));  // the mean that everybody normalises with
  CHECK(histogram.size() == 10);
  for (const auto& [label, count] : histogram) CHECK(count == 6000);
}

TEST_CASE("IDX files are read, plain or compressed") {
  IdxFolder folder;
  const DataSplit plain = load_idx(folder.path(), 0);
  CHECK(plain.train->size() == 4);
  CHECK(plain.train->input_cols() == 6);
  CHECK(plain.train->classes() == 3);
  CHECK(plain.test->size() == 2);
  CHECK(sample(*plain.train, 3) ==
        Sample{{18 / 255.F, 19 / 255.F, 20 / 255.F, 21 / 255.F, 22 / 255.F, 23 / 255.F}, {2}});

  for (const std::string& file : {folder.train_images, folder.train_labels, folder.test_images, folder.test_labels}) {
    gzip(read_file(file), file + ".gz");
    std::filesystem::remove(file);
  }
  const DataSplit zipped = load_idx(folder.path(), 3);
  for (std::size_t i = 0; i < 4; ++i) CHECK(sample(*zipped.train, i) == sample(*plain.train, i));

  gzip(labels({0, 0, 0, 0}), folder.train_labels);  // the content decides, not the name
  CHECK(sample(*load_idx(folder.path(), 3).train, 3).targets[0] == 0);
}

TEST_CASE("bad IDX files are refused by name") {
  IdxFolder folder;
  const auto load = [&] { load_idx(folder.path(), 0); };
  SECTION("missing") {
    std::filesystem::remove(folder.test_images);
    refuses(load, "t10k-images-idx3-ubyte", "no such file");
  }
  SECTION("a folder where a file belongs") {
    std::filesystem::remove(folder.train_labels);
    std::filesystem::create_directory(folder.train_labels);
    refuses(load, folder.train_labels, "not a regular file");
  }
  SECTION("a pipe that nobody writes") {
    std::filesystem::remove(folder.train_labels);
    REQUIRE(::mkfifo(folder.train_labels.c_str(), 0600) == 0);
    refuses(load, folder.train_labels, "not a regular file");
  }
  SECTION("wrong magic") {
    write_file(folder.train_labels, images(4, 1, 1));
    refuses(load, folder.train_labels, "starts with 00000803, expected 00000801");
  }
  SECTION("truncated anywhere") {
    const std::string whole = read_file(folder.train_images);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      write_file(folder.train_images, whole.substr(0, n));
      refuses(load, folder.train_images, "truncated");
    }
  }
  SECTION("truncated anywhere, compressed") {
    const std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    for (std::size_t n = 0; n < whole.size(); ++n) {
      write_file(folder.train_images, whole.substr(0, n));
      refuses(load, folder.train_images, "");
    }
  }
  SECTION("corrupt compression") {
    std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    for (const std::size_t at : {whole.size() / 2, whole.size() - 6}) {  // the data, the checksum
      std::string bad = whole;
      bad[at] = static_cast<char>(~bad[at]);
      write_file(folder.train_images, bad);
      refuses(load, folder.train_images, "");
    }
  }
  SECTION("any bit flipped, compressed: the same images, or an error") {
    const DataSplit good = load_idx(folder.path(), 0);
    const std::string whole = gzip(read_file(folder.train_images), folder.train_images);
    int refused = 0;
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string bad = whole;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      write_file(folder.train_images, bad);
      try {
        const DataSplit split = load_idx(folder.path(), 0);
        for (std::size_t i = 0; i < 4; ++i) REQUIRE(sample(*split.train, i) == sample(*good.train, i));
      } catch (const Error& e) {
        REQUIRE(e.kind() == ErrorKind::data);
        ++refused;
      }
    }
    CHECK(refused > static_cast<int>(whole.size() - 18) * 8);  // all but what the 18 framing bytes leave open
  }
  SECTION("trailing bytes") {
    write_file(folder.train_labels, labels({2, 0, 1, 2}) + "x");
    refuses(load, folder.train_labels, "trailing");
    gzip(labels({2, 0, 1, 2}) + "x", folder.train_labels);
    refuses(load, folder.train_labels, "trailing");
  }
  SECTION("counts that differ") {
    write_file(folder.train_labels, labels({2, 0, 1}));
    refuses(load, folder.train_labels, "3 labels for the 4 images");
  }
  SECTION("labels out of range") {
    write_file(folder.test_labels, labels({1, 3}));
    refuses(load, folder.test_labels, "label 3 of sample 1 is not below 3");
    refuses([&] { load_idx(folder.path(), 2); }, folder.train_labels, "label 2 of sample 0");
    refuses([&] { load_idx(folder.path(), 0, 2, "m"); }, folder.train_labels,
            "label 2 of sample 0 does not fit --model m, whose 2 classes are 0 to 1");
  }
  SECTION("test images of another size") {
    write_file(folder.test_images, images(2, 3, 3));
    refuses(load, folder.test_images, "9 pixels");
  }
  SECTION("no samples") {
    write_file(folder.train_images, images(0, 2, 3));
    refuses(load, folder.train_images, "no samples");
  }
  SECTION("absurd claims, refused before memory is taken") {
    for (const std::uint32_t extent : {1U << 16, 1U << 31, 0xFFFFFFFFU}) {
      const std::string claim = big_endian(0x803) + big_endian(extent) + big_endian(extent) + big_endian(extent);
      write_file(folder.train_images, claim);
      refuses(load, folder.train_images, "claims");
      gzip(claim, folder.train_images);
      refuses(load, folder.train_images, "claims");
    }
  }
}

TEST_CASE("a missing data set says what to install") {
  refuses([] { make_fashion_mnist(Spec::parse("--data", "fashion-mnist:/no/such/folder"), {}); }, "/no/such/folder",
          "install the package dataset-fashion-mnist");
}
