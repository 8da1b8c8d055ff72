#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// The columns of a line, in this order. Either `values` or `classes` is 0.
struct CsvColumns {
  std::size_t inputs = 0;
  std::size_t values = 0;   ///< real targets
  std::size_t classes = 0;  ///< if not 0: one more column, a class below this number
};

/// Loads a text of numbers, separated by commas, one sample a line, such as "0.5,1e-3,-2". A first line that does not
/// begin with a number is a header and is skipped, and so are empty lines. The samples are held in memory. Throws data,
/// naming the file and the line, if a line has another number of columns, a value is not a finite number, or a class is
/// not a whole number below `classes`; also if the file cannot be read.
std::unique_ptr<Dataset> load_csv(const std::string& path, const CsvColumns& columns);

}  // namespace psring::worker
