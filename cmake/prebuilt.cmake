# Kernels that come with the package (tools/prebuild.py): compiled after the extension, by calling every function of it. It takes a
# minute or two, so a plain build in a developer's tree leaves it out; `cmake --build <folder> --target prebuilt`, and every build of
# the package, make it. Whatever goes wrong there is a warning: without the file, kernels are compiled when they are first used.
set(levels "$ENV{TANDEM_PREBUILT_LEVELS}")
set(TANDEM_PREBUILT_LEVELS "${levels}" CACHE STRING
    "Processors that kernels are compiled for ahead, such as v3,v4; by default the building one's; none: no kernels")
set(TANDEM_PREBUILT_DIR ${CMAKE_BINARY_DIR}/prebuilt)

if(CMAKE_CROSSCOMPILING)
  message(STATUS "Prebuilt kernels: none, they cannot be made for another machine")
elseif(TANDEM_PREBUILT_LEVELS STREQUAL "none")
  message(STATUS "Prebuilt kernels: none")
else()
  if(SKBUILD)
    set(all ALL)
  endif()
  add_custom_target(prebuilt ${all}
    COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/prebuild.py ${TANDEM_PREBUILT_DIR}/files --if-changed --warn
            --extension $<TARGET_FILE_DIR:_runtime> --work ${TANDEM_PREBUILT_DIR} "--levels=${TANDEM_PREBUILT_LEVELS}"
    COMMENT "Compiling the kernels that come with the package" VERBATIM USES_TERMINAL)
  add_dependencies(prebuilt _runtime)
  install(DIRECTORY ${TANDEM_PREBUILT_DIR}/files/ DESTINATION tandem OPTIONAL FILES_MATCHING PATTERN "prebuilt-*.bin")
endif()
