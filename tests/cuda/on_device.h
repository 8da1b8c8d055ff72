#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include <psring/common/base/rng.h>
#include <psring/common/device/device.h>

// Shared by the tests of the CUDA backend. These are compiled twice: for the host (support/cuda_on_host), and for the
// GPU that is there. Sizes are such that no block of a kernel divides them.
namespace psring::test {

using Values = std::vector<double>;

/// The GPU of this test, or one that the host plays.
inline Device& device() {
  static const std::unique_ptr<Device> one = make_cuda_device(0);
  return *one;
}

/// Elements of the device, with copies of them as the host sees them.
class OnDevice {
 public:
  OnDevice(DType type, std::size_t size)
      : elements_(device().allocate(size * size_bytes(type), Category::activations), size, type, &device()) {}
  OnDevice(DType type, const Values& values) : OnDevice(type, values.size()) { set(values); }
  ~OnDevice() { device().free(elements_.data()); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  operator Elements() const { return elements_; }
  operator ConstElements() const { return elements_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(elements_.data());
  }

  void set(const Values& values) {
    std::vector<std::byte> bytes(elements_.size_bytes());
    const Elements host(bytes.data(), elements_.size(), elements_.type());
    const std::vector<float> floats(values.begin(), values.end());
    narrow(floats, host);
    copy(host, elements_);
  }
  Values get() const {
    std::vector<std::byte> bytes(elements_.size_bytes());
    const Elements host(bytes.data(), elements_.size(), elements_.type());
    copy(ConstElements(elements_), host);
    std::vector<float> floats(elements_.size());
    widen(host, floats);
    return {floats.begin(), floats.end()};
  }

 private:
  Elements elements_;
};

/// Normal numbers, as elements of that type hold them.
inline Values noise(DType type, std::size_t size, std::uint32_t stream, double scale = 1) {
  const CounterRng rng({.seed = 11, .tensor = stream});
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(scale) * rng.normal(i);
  round_to(type, values);
  return {values.begin(), values.end()};
}

inline double tolerance(DType type) { return type == DType::f32 ? 1e-5 : 1e-2; }

inline double difference(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm == 0 ? error : std::sqrt(error / norm);
}

inline void check_close(const Values& got, const Values& expected, DType type) {
  CHECK(difference(got, expected) < tolerance(type));
}

inline constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

}  // namespace psring::test
