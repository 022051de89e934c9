# A list of what is in the package that others made (CycloneDX), beside its metadata.
if(SKBUILD)
  set(sbom ${CMAKE_BINARY_DIR}/tandem.cdx.json)
  execute_process(COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/sbom.py ${sbom} --libraries ${TANDEM_LIB_DIR}
                          --compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
                  RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(WARNING "No SBOM: ${errors}")
  else()
    install(FILES ${sbom} DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
  endif()
endif()
