#pragma once

// OpenMP's omp.h comes with each compiler. oneDNN brings the library, GCC's, whoever compiles this.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int threads);

namespace psring {

/// Describes a primitive, such as dnnl::matmul. `parts` are its kind, operands and sizes: oneDNN 2 makes an operation
/// of them, oneDNN 3 takes them as they are. Returns an empty description if oneDNN has no implementation.
template <class Primitive, class Engine, class Attributes, class... Parts>
typename Primitive::primitive_desc describe_primitive(const Engine& engine, const Attributes& attributes,
                                                      const Parts&... parts) {
  constexpr bool kMayBeEmpty = true;
  if constexpr (requires { typename Primitive::desc; })
    return {typename Primitive::desc(parts...), attributes, engine, kMayBeEmpty};
  else
    return {engine, parts..., attributes, kMayBeEmpty};
}

/// Describes the primitive of the backward pass of `forward`.
template <class Primitive, class Engine, class Attributes, class Forward, class... Parts>
typename Primitive::primitive_desc describe_backward(const Engine& engine, const Attributes& attributes,
                                                     const Forward& forward, const Parts&... parts) {
  constexpr bool kMayBeEmpty = true;
  if constexpr (requires { typename Primitive::desc; })
    return {typename Primitive::desc(parts...), attributes, engine, forward, kMayBeEmpty};
  else
    return {engine, parts..., forward, attributes, kMayBeEmpty};
}

}  // namespace psring
