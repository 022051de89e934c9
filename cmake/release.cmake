# What a package that is given away has and a developer's build does without: guards against overruns, no paths of the building
# machine inside, and no need for the C++ library of the machine that it runs on.
set(TANDEM_RELEASE AUTO CACHE STRING "Build as for a package that is given away: ON, OFF, or AUTO, which is ON for wheels")
set(release ${TANDEM_RELEASE})  # not kept: one folder may serve both kinds of builds
if(release STREQUAL "AUTO")
  if(SKBUILD AND NOT SKBUILD_STATE STREQUAL "editable")
    set(release ON)
  else()
    set(release OFF)
  endif()
endif()

add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
if(release)
  # The last map that fits counts, so the folder inside comes after the one around it.
  get_filename_component(python_prefix ${Python_EXECUTABLE}/../.. ABSOLUTE)
  foreach(map ${Python_INCLUDE_DIRS}=python ${nanobind_ROOT}/..=nanobind ${python_prefix}=python ${CMAKE_SOURCE_DIR}=tandem
              ${CMAKE_BINARY_DIR}=build)
    add_compile_options(-ffile-prefix-map=${map})
  endforeach()
  add_compile_options(-fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  # As an archive, the C++ library need not be there, or as new as the compiler; what it asks of a new C library is in
  # src/portable. The archive of libgcc would ask for glibc 2.35.
  add_link_options(-static-libstdc++ -Wl,--wrap=arc4random)
  set(TANDEM_PROTECT PROTECT_STACK)  # nanobind would switch it off
  set(TANDEM_PORTABLE ${CMAKE_SOURCE_DIR}/src/portable/random.cc)
endif()
