# What calls Gloo, a library of its own: built where Gloo's headers and library are found (apt install libgloo-dev), and
# opened at run time. -DGloo_DIR names another place; -DTANDEM_GLOO=OFF leaves it out, as wheels do: who installs one may
# not have the library.
option(TANDEM_GLOO "Build the plugin for Gloo where Gloo is found" ON)
if(TANDEM_GLOO)
  find_package(Gloo CONFIG QUIET)
endif()
if(TANDEM_GLOO AND TARGET gloo)
  add_library(tandem_gloo MODULE ${CMAKE_SOURCE_DIR}/src/collectives/gloo_plugin/plugin.cc)
  set_target_properties(tandem_gloo PROPERTIES PREFIX "lib" CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(tandem_gloo PRIVATE gloo)
  install(TARGETS tandem_gloo LIBRARY DESTINATION tandem)
  message(STATUS "Gloo ${GLOO_VERSION}: its plugin is built")
endif()
