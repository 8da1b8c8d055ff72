// The C interface: the vector that the job's servers own.
#include <span>
#include <vector>

#include <psring/c.h>
#include <psring/worker/c/guard.h>
#include <psring/worker/c/handles.h>

using psring::ErrorKind;
using psring::fail;
using psring::TensorLayout;
using psring::UnitSpec;
using psring::c::guarded;
using psring::c::moment_in;
using psring::c::require;
using psring::c::Vector;
using psring::c::write_moved;

namespace {

std::vector<UnitSpec> units_of(const psring_unit* units, size_t count) {
  require(units, "psring_vector_open: units");
  if (count == 0) fail(ErrorKind::usage, "psring_vector_open: no units");
  std::vector<UnitSpec> specs;
  for (const psring_unit& unit : std::span(units, count)) {
    require(unit.name, "psring_vector_open: a unit's name");
    require(unit.tensors, "psring_vector_open: a unit's tensors");
    UnitSpec& spec = specs.emplace_back(UnitSpec{unit.name, {}});
    for (const psring_tensor& tensor : std::span(unit.tensors, unit.count)) {
      require(tensor.name, "psring_vector_open: a tensor's name");
      if (tensor.dimensions > 0) require(tensor.shape, "psring_vector_open: a tensor's shape");
      TensorLayout& layout = spec.tensors.emplace_back();
      layout.spec = {tensor.name, {tensor.shape, tensor.shape + tensor.dimensions}, {}};
    }
  }
  return specs;
}

/// Calls `body` with the vector.
template <class Body>
psring_status on(psring_vector* vector, const char* function, Body body) {
  return guarded([&] {
    if (vector == nullptr || vector->vector == nullptr) fail(ErrorKind::usage, "{}: vector is null", function);
    vector->job->require_own_process();
    return body(*vector->vector);
  });
}

}  // namespace

psring_status psring_vector_open(psring_job* job, const psring_unit* units, size_t count, psring_vector** vector) {
  return guarded([&] {
    require(vector, "psring_vector_open: vector");
    *vector = nullptr;
    require(job, "psring_vector_open: job");
    job->job->require_own_process();
    job->vector.vector = &job->job->open_vector(units_of(units, count));
    job->vector.job = job->job;
    *vector = &job->vector;
  });
}

psring_status psring_vector_tensor(psring_vector* vector, size_t unit, size_t tensor, float** values, float** gradients,
                                   size_t* count) {
  return on(vector, "psring_vector_tensor", [&](Vector& open) {
    require("psring_vector_tensor", {{values, "values"}, {gradients, "gradients"}, {count, "count"}});
    const std::span<float> all = open.values(unit);
    const auto& tensors = open.layout().units[unit].tensors;
    if (tensor >= tensors.size())
      fail(ErrorKind::usage, "psring_vector_tensor: tensor {} of a unit of {}", tensor, tensors.size());
    const TensorLayout& layout = tensors[tensor];
    *count = layout.spec.elements();
    *values = all.subspan(layout.offset, *count).data();
    *gradients = open.gradients(unit).subspan(layout.offset, *count).data();
  });
}

psring_status psring_vector_start(psring_vector* vector, uint64_t* version) {
  return on(vector, "psring_vector_start", [&](Vector& open) {
    require(version, "psring_vector_start: version");
    *version = open.start();
  });
}

psring_status psring_vector_unit(psring_vector* vector, size_t unit, size_t* count, uint64_t* pushed,
                                 uint64_t* pulled) {
  return on(vector, "psring_vector_unit", [&](Vector& open) {
    require("psring_vector_unit", {{count, "count"}, {pushed, "pushed"}, {pulled, "pulled"}});
    write_moved(open.predict(unit), pushed, pulled);
    *count = open.layout().units[unit].elements;
  });
}

psring_status psring_vector_agree(psring_vector* vector, uint64_t* version) {
  return on(vector, "psring_vector_agree", [&](Vector& open) {
    require(version, "psring_vector_agree: version");
    *version = open.agree();
  });
}

psring_status psring_vector_begin(psring_vector* vector, size_t unit, float* values) {
  return on(vector, "psring_vector_begin", [&](Vector& open) {
    require(values, "psring_vector_begin: values");
    open.begin(unit, values);
  });
}

psring_status psring_push_from(psring_vector* vector, size_t unit, uint64_t step, const float* gradients) {
  return on(vector, "psring_push_from", [&](Vector& open) {
    require(gradients, "psring_push_from: gradients");
    open.push(unit, step, gradients);
  });
}

psring_status psring_pull_into(psring_vector* vector, size_t unit, uint64_t version, float* values) {
  return on(vector, "psring_pull_into", [&](Vector& open) {
    require(values, "psring_pull_into: values");
    open.pull(unit, version, values);
  });
}

psring_status psring_vector_moved(psring_vector* vector, uint64_t* sent, uint64_t* received) {
  return on(vector, "psring_vector_moved", [&](Vector& open) {
    require("psring_vector_moved", {{sent, "sent"}, {received, "received"}});
    write_moved(open.moved(), sent, received);
  });
}

psring_status psring_push(psring_vector* vector, size_t unit, uint64_t step) {
  return on(vector, "psring_push", [&](Vector& open) { open.push(unit, step, nullptr); });
}

psring_status psring_pull(psring_vector* vector, size_t unit, uint64_t version) {
  return on(vector, "psring_pull", [&](Vector& open) { open.pull(unit, version, nullptr); });
}

psring_status psring_push_pull(psring_vector* vector, size_t unit, uint64_t step) {
  return on(vector, "psring_push_pull", [&](Vector& open) { open.push_pull(unit, step); });
}

psring_status psring_wait_pull(psring_vector* vector, size_t unit, uint64_t version, double timeout) {
  return on(vector, "psring_wait_pull", [&](Vector& open) {
    return open.wait(unit, version, moment_in(timeout)) ? PSRING_OK
                                                        : psring::c::pending("the values have not come yet");
  });
}

psring_status psring_wait_push(psring_vector* vector, size_t unit, double timeout) {
  return on(vector, "psring_wait_push", [&](Vector& open) {
    return open.wait_pushed(unit, moment_in(timeout)) ? PSRING_OK
                                                      : psring::c::pending("the servers have not taken the push yet");
  });
}

psring_status psring_vector_finish(psring_vector* vector) {
  return on(vector, "psring_vector_finish", [&](Vector& open) { open.finish(); });
}

psring_status psring_vector_save(psring_vector* vector, uint64_t version) {
  return on(vector, "psring_vector_save", [&](Vector& open) { open.save(version); });
}

psring_status psring_vector_staleness(psring_vector* vector, double* mean) {
  return on(vector, "psring_vector_staleness", [&](Vector& open) {
    require(mean, "psring_vector_staleness: mean");
    *mean = open.take_staleness();
  });
}
