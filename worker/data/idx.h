#pragma once

#include <cstddef>
#include <string>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Images and labels in IDX files (Y. LeCun's format for MNIST), plain or gzip by content:
///
///   images = 00 00 08 03, count, rows, columns, count * rows * columns bytes of pixels
///   labels = 00 00 08 01, count, count bytes of labels         (numbers are 32 bits, big-endian)
///
/// `folder` holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the same as t10k-… for the test
/// split, each with or without .gz (where both are there, the one without). A sample is an image's
/// rows * columns pixels divided by 255, and its label. Pixels stay bytes in memory.
///
/// `classes`: labels must lie below it; 0 takes the largest training label + 1, which may be `most_classes` at most
/// where that is not 0. Throws data, naming the file, where one is missing, truncated, corrupt, longer than its header
/// says, or does not fit the others; for a label that is too large also the label, its sample and `model`.
DataSplit load_idx(const std::string& folder, std::size_t classes, std::size_t most_classes = 0,
                   const std::string& model = "");

}  // namespace psring::worker
