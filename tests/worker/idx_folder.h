#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <psring/tests/support/temporary_folder.h>

// Files of images and labels in the IDX format.
namespace psring::test {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

inline std::string images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  std::string bytes = big_endian(0x803) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes += static_cast<char>(i % 256);
  return bytes;
}

inline std::string labels(const std::vector<int>& values) {
  std::string bytes = big_endian(0x801) + big_endian(static_cast<std::uint32_t>(values.size()));
  for (const int value : values) bytes += static_cast<char>(value);
  return bytes;
}

/// A folder with 4 training and 2 test images of 2 x 3 pixels.
struct IdxFolder : TemporaryFolder {
  IdxFolder() {
    write_file(train_images, images(4, 2, 3));
    write_file(train_labels, labels({2, 0, 1, 2}));
    write_file(test_images, images(2, 2, 3));
    write_file(test_labels, labels({1, 2}));
  }
  std::string train_images = file("train-images-idx3-ubyte");
  std::string train_labels = file("train-labels-idx1-ubyte");
  std::string test_images = file("t10k-images-idx3-ubyte");
  std::string test_labels = file("t10k-labels-idx1-ubyte");
};

}  // namespace psring::test
