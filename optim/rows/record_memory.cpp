#include <algorithm>
#include <cstring>
#include <limits>

#include <psring/common/base/range.h>
#include <psring/common/base/text/error.h>
#include <psring/optim/rows/record_memory.h>

namespace psring::optim {

std::size_t RecordMemory::Sizes::stride() const {
  return values + state == 0 ? sizeof(RecordHeader)
                             : round_up(sizeof(RecordHeader) + (values + state) * sizeof(float), 32);
}

std::size_t RecordMemory::Sizes::booked_bytes(std::size_t rows) const { return round_up(rows * stride(), kStepBytes); }

std::size_t RecordMemory::Sizes::parameter_bytes(std::size_t booked) const {
  return booked * (values * sizeof(float)) / stride();
}

RecordMemory::RecordMemory(Sizes sizes, std::size_t most_bytes, MemoryLedger& ledger)
    : sizes_(sizes),
      stride_(sizes.stride()),
      ledger_(ledger),
      memory_(std::max(round_up(most_bytes, kStepBytes), kStepBytes)) {}

RecordMemory::~RecordMemory() { book(0); }

/// Books `bytes` in place of what is booked.
void RecordMemory::book(std::size_t bytes) {
  const std::size_t before = sizes_.parameter_bytes(booked_);
  ledger_.release(Category::parameters, before);
  ledger_.release(Category::optimizer, booked_ - before);
  booked_ = bytes;
  const std::size_t after = sizes_.parameter_bytes(booked_);
  ledger_.book(Category::parameters, after);
  ledger_.book(Category::optimizer, booked_ - after);
}

/// Touches the steps that follow what is booked.
void RecordMemory::touch_ahead() {
  const std::size_t ahead = std::min(booked_ / 8 / kStepBytes * kStepBytes, kMostAhead);
  const Range more{std::max(reached_, booked_), std::min(booked_ + ahead, memory_.size())};
  reached_ = std::max(more.begin, more.end);
  if (more.begin < more.end) ahead_.touch(memory_.bytes().subspan(more.begin, more.size()));
}

std::uint32_t RecordMemory::add() {
  if (free_ > 0) {
    const std::uint32_t row = next_free_;
    next_free_ = static_cast<std::uint32_t>(header(row).key);
    --free_;
    std::memset(at(row), 0, stride_);
    return row;
  }
  if ((rows_ + 1) * stride_ > memory_.size() || rows_ + 1 == std::numeric_limits<std::uint32_t>::max())
    fail(ErrorKind::data, "a table with {} rows of {} bytes fills the memory of this host", rows_, stride_);
  if (const std::size_t bytes = sizes_.booked_bytes(rows_ + 1); bytes != booked_) {
    book(bytes);
    touch_ahead();
  }
  return static_cast<std::uint32_t>(rows_++);
}

void RecordMemory::remove(std::uint32_t row) {
  header(row) = {.key = next_free_, .updates = 0, .last = 0};
  next_free_ = row;
  ++free_;
}

}  // namespace psring::optim
