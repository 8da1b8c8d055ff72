# Installs psring for find_package(psring): libraries, the headers that a user's program may include, and the package
# file. psring_program installs the programs.
include(CMakePackageConfigHelpers)

# The headers for a program that adds layers, models, data sets, strategies, optimizers or aggregation rules, or that
# pushes and pulls; with all headers that these include. tests/install checks that the list is closed.
set(PSRING_PUBLIC_HEADERS
  cli/app.h
  cli/check/exercise.h
  common/base/byte_ledger.h
  common/base/clock.h
  common/base/consistency.h
  common/base/dtype.h
  common/base/elements.h
  common/base/text/error.h
  common/base/system/extension.h
  common/base/system/fd.h
  common/base/system/file.h
  common/base/half.h
  common/base/host_device.h
  common/base/layout.h
  common/base/memory_ledger.h
  common/base/mesh.h
  common/base/text/peer_name.h
  common/base/pieces.h
  common/base/range.h
  common/base/text/registry.h
  common/base/rng.h
  common/base/system/shared_cell.h
  common/base/text/spec.h
  common/base/events/events.h
  common/device/arena.h
  common/device/buffer.h
  common/device/copy_queue.h
  common/device/device.h
  common/device/kernels.h
  common/device/mapping.h
  common/net/frame.h
  common/net/held_frames.h
  common/net/layout_message.h
  common/net/outbox.h
  common/net/transport.h
  common/net/turn_queue.h
  common/proc/job.h
  common/proc/role_options.h
  optim/checkpoint/shard.h
  optim/codec/compression.h
  optim/device_applier.h
  optim/exact_sum.h
  optim/formula.h
  optim/norm.h
  optim/operands.h
  optim/loss_scaler.h
  optim/mixed.h
  optim/optimizer.h
  optim/optimizers.h
  optim/schedule.h
  optim/state_memory.h
  optim/updater.h
  ring/collective.h
  ring/collectives.h
  ring/element.h
  ring/bucketer.h
  ring/process_group.h
  ring/reduce_op.h
  ring/session.h
  ring/work.h
  server/aggregator.h
  worker/servers/client_protocol.h
  worker/state/compressor.h
  worker/state/error_feedback.h
  worker/data/csv.h
  worker/data/dataset.h
  worker/data/fingerprint.h
  worker/data/idx.h
  worker/data/make_dataset.h
  worker/data/sampler.h
  worker/data/synthetic.h
  worker/data/text.h
  worker/data/tokenizer/tokenizer.h
  worker/exchange/averaging.h
  worker/exchange/workers/coded_work.h
  worker/exchange/fetch_schedule.h
  worker/exchange/fetched_parameters.h
  worker/exchange/workers/gathered_parameters.h
  worker/exchange/gradient_window.h
  worker/exchange/servers/host_sum.h
  worker/exchange/servers/late_updates.h
  worker/exchange/local_gradients.h
  worker/exchange/local_optimizer.h
  worker/exchange/local_updates.h
  worker/exchange/ownership.h
  worker/exchange/parts.h
  worker/exchange/plan.h
  worker/exchange/prediction.h
  worker/exchange/servers/pulled_parameters.h
  worker/exchange/servers/pushed_gradients.h
  worker/exchange/ready_units.h
  worker/exchange/servers/server_link.h
  worker/exchange/servers/server_updates.h
  worker/exchange/servers/servers.h
  worker/exchange/workers/shard_groups.h
  worker/exchange/workers/sharded_gradients.h
  worker/exchange/mesh/shared_parameters.h
  worker/exchange/tables/tables.h
  worker/exchange/transient_units.h
  worker/exchange/unit_order.h
  worker/exchange/whole_parameters.h
  worker/exchange/whole_units.h
  worker/exchange/servers/windowed_pushes.h
  worker/exchange/workers/workers.h
  worker/inference.h
  worker/model/layers/batch_norm.h
  worker/model/check_gradients.h
  worker/model/conv_net.h
  worker/model/layers/convolution.h
  worker/model/layers/dropout.h
  worker/model/layers/gelu.h
  worker/model/generate/generator.h
  worker/model/generate/token_sampler.h
  worker/model/generate/weight_format.h
  worker/model/gpt.h
  worker/model/layers/gpt_layers.h
  worker/model/graph.h
  worker/model/layers/joins.h
  worker/model/layer.h
  worker/model/layers/linear.h
  worker/model/loss.h
  worker/model/mlp.h
  worker/model/model.h
  worker/model/parallel/cross_entropy.h
  worker/model/parallel/tensor_part.h
  worker/model/safetensors.h
  worker/servers/ps_client.h
  worker/registries.h
  worker/session.h
  worker/step_callback.h
  worker/strategy/abilities.h
  worker/strategy/composition.h
  worker/strategy/strategies.h
  worker/strategy/strategy.h
  worker/strategy/strategy_kind.h
  worker/tables/saved_tables.h
  worker/tables/table_protocol.h)

foreach(header ${PSRING_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/psring/${folder})
endforeach()

set(PSRING_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/psring)
set(PSRING_INSTALLED_LIBRARIES cli view bench worker server ring optim common)  # a library before those that it needs
list(TRANSFORM PSRING_INSTALLED_LIBRARIES PREPEND psring_ OUTPUT_VARIABLE targets)
install(TARGETS ${targets} EXPORT psring ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT psring NAMESPACE psring:: FILE psringTargets.cmake DESTINATION ${PSRING_PACKAGE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/psringConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/psringConfig.cmake INSTALL_DESTINATION ${PSRING_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/psringConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/psringConfig.cmake ${PROJECT_BINARY_DIR}/psringConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake ${PROJECT_SOURCE_DIR}/cmake/FindSodium.cmake
        DESTINATION ${PSRING_PACKAGE_DIR})

# The same for pkg-config. The folder of the file gives the prefix, so that an installation can be moved.
list(TRANSFORM targets PREPEND -l)
get_target_property(options psring_common INTERFACE_LINK_OPTIONS)
list(TRANSFORM options REPLACE "^LINKER:" "-Wl,")
list(JOIN targets " " PSRING_LIBRARY_FLAGS)
list(JOIN options " " PSRING_LINK_FLAGS)
file(RELATIVE_PATH PSRING_PKGCONFIG_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/psring.pc.in ${PROJECT_BINARY_DIR}/psring.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/psring.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The Python package. As in the wheel, its folders lib and bin have the library and the programs: here they are links.
set(PSRING_PYTHON_DIR lib/python3/dist-packages CACHE STRING "Where the Python package is installed, below the prefix")
mark_as_advanced(PSRING_PYTHON_DIR)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/psring DESTINATION ${PSRING_PYTHON_DIR}
        FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE)
foreach(link lib bin)
  set(folder ${CMAKE_INSTALL_BINDIR})
  if(link STREQUAL lib)
    set(folder ${CMAKE_INSTALL_LIBDIR})
  endif()
  file(RELATIVE_PATH target /${PSRING_PYTHON_DIR}/psring /${folder})
  install(CODE "file(CREATE_LINK ${target} \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${PSRING_PYTHON_DIR}/psring/${link}\" SYMBOLIC)")
endforeach()
