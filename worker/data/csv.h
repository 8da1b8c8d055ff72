#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <psring/worker/data/dataset.h>

namespace psring::worker {

/// Returns the number that a text writes, as Python and NumPy read it: to the nearest f64, then to the nearest f32. A
/// number that is too large is infinity, and one that is too small is 0. Returns nothing if the text is no number.
std::optional<float> number_of(std::string_view text);

/// The columns of a row, in this order. Either `values` or `classes` is 0.
struct CsvColumns {
  std::size_t inputs = 0;
  std::size_t values = 0;   ///< real targets
  std::size_t classes = 0;  ///< if not 0: one more column, a class below this number
};

/// The rule for inputs that are missing: an empty cell, ?, NA, N/A, nan, null or none, in small or capital letters.
struct CsvMissing {
  enum class Rule : std::uint8_t { refuse, zero, mean };

  /// Parses "refuse", "zero" or "mean". Throws usage, naming `flag`.
  static CsvMissing parse(std::string_view flag, std::string_view text);

  Rule rule = Rule::refuse;
  /// The number for each column of inputs. With `mean`, the first file that is loaded sets them, so that a test file
  /// is filled with the means of the training file.
  std::vector<float> values = {};
};

/// Loads a text of numbers, separated by commas, one sample a row, such as "0.5,1e-3,-2". Cells are cut as Python's csv
/// module cuts them, and numbers are read as NumPy reads them in f32. A first row without a number is a header and is
/// skipped, and so are empty lines. The samples are held in memory. Throws data, naming the file and the line, if a row
/// has another number of columns, a value is missing and not filled, a value is not a finite number, or a class is not
/// a whole number below `classes`; also if the file cannot be read.
std::unique_ptr<Dataset> load_csv(const std::string& path, const CsvColumns& columns, CsvMissing& missing);

}  // namespace psring::worker
