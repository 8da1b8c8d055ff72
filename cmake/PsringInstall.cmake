# Installs psring for find_package(psring): libraries, the headers that a user's program may include, and the package
# file. psring_program installs the programs.
include(CMakePackageConfigHelpers)

# The headers for a program that adds layers, models, data sets, strategies, optimizers or aggregation rules, or that
# pushes and pulls. All headers that these include are installed with them.
set(PSRING_PUBLIC_HEADERS
  cli/app.h
  cli/check/exercise.h
  common/base/byte_ledger.h
  common/base/system/extension.h
  common/base/text/registry.h
  common/device/kernels.h
  common/net/transport.h
  optim/operands.h
  optim/rows/kv_handle.h
  optim/optimizer.h
  ring/collectives.h
  ring/bucketer.h
  ring/process_group.h
  ring/session.h
  server/aggregator.h
  server/serve.h
  worker/state/compressor.h
  worker/data/csv.h
  worker/data/fingerprint.h
  worker/data/idx.h
  worker/data/sampler.h
  worker/data/synthetic.h
  worker/data/text.h
  worker/data/tokenizer/tokenizer.h
  worker/exchange/workers/coded_work.h
  worker/exchange/fetched_parameters.h
  worker/exchange/servers/late_updates.h
  worker/exchange/local_gradients.h
  worker/exchange/memory_formula.h
  worker/exchange/servers/pushed_gradients.h
  worker/exchange/workers/sharded_gradients.h
  worker/exchange/unit_order.h
  worker/exchange/whole_parameters.h
  worker/inference.h
  worker/kv_client.h
  worker/model/layers/batch_norm.h
  worker/model/check_gradients.h
  worker/model/conv_net.h
  worker/model/layers/convolution.h
  worker/model/layers/dropout.h
  worker/model/layers/gelu.h
  worker/model/generate/generator.h
  worker/model/gpt.h
  worker/model/graph.h
  worker/model/layers/joins.h
  worker/model/layer.h
  worker/model/layers/linear.h
  worker/model/loss.h
  worker/model/mlp.h
  worker/model/model.h
  worker/model/parallel/cross_entropy.h
  worker/model/safetensors.h
  worker/servers/ps_client.h
  worker/registries.h
  worker/session.h
  worker/step_callback.h
  worker/strategy/composition.h
  worker/strategy/strategies.h
  worker/strategy/strategy.h
  worker/tables/row_client.h
  worker/tables/saved_tables.h)

install(CODE "
  set(headers ${PSRING_PUBLIC_HEADERS})
  set(source \"${PROJECT_SOURCE_DIR}\")
  set(target \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/psring\")")
install(CODE [[
  cmake_policy(SET CMP0057 NEW)  # if(IN_LIST)
  set(installed)
  while(headers)
    list(POP_BACK headers header)
    if(NOT header IN_LIST installed)
      list(APPEND installed ${header})
      get_filename_component(folder ${header} DIRECTORY)
      file(INSTALL ${source}/${header} DESTINATION ${target}/${folder})
      file(STRINGS ${source}/${header} includes REGEX "^#include <psring/")
      list(TRANSFORM includes REPLACE "^#include <psring/([^>]+)>.*" "\\1")
      list(APPEND headers ${includes})
    endif()
  endwhile()]])

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
