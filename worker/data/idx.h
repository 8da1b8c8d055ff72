#pragma once

#include <cstddef>
#include <string>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Loads images and labels from IDX files (Y. LeCun's format for MNIST); plain or gzip is detected by content:
///
///   images = 00 00 08 03, count, rows, columns, count * rows * columns bytes of pixels
///   labels = 00 00 08 01, count, count bytes of labels         (numbers are 32 bits, big-endian)
///
/// `folder` holds train-images-idx3-ubyte and train-labels-idx1-ubyte, and the same files with t10k instead of train
/// for the test split. Each may end in .gz; a file without .gz is preferred. A sample is an image's rows * columns
/// pixels divided by 255, and its label. Pixels stay bytes in memory.
///
/// `classes`: labels must be below this number. With 0, the number is the largest training label + 1, which must not
/// exceed `most_classes` unless that is 0. Throws data, naming the file, if a file is missing, truncated, corrupt,
/// longer than its header says, or does not match the others. If a label is too large, the error also names the label,
/// its sample and `model`.
DataSplit load_idx(const std::string& folder, std::size_t classes, std::size_t most_classes = 0,
                   const std::string& model = "");

}  // namespace psring::worker
