# cmake --install: the program, the libraries, their headers and a CMake package. A project that uses it writes
#   find_package(triptych REQUIRED)
#   target_link_libraries(app PRIVATE triptych::triptych)
# and includes headers as the sources do: #include "engine/engine.h".
include(CMakePackageConfigHelpers)

get_property(triptych_layers GLOBAL PROPERTY TRIPTYCH_LAYERS)
list(REMOVE_ITEM triptych_layers triptych_cli)
add_library(triptych_all INTERFACE)
target_link_libraries(triptych_all INTERFACE ${triptych_layers})
set_target_properties(triptych_all PROPERTIES EXPORT_NAME triptych)
add_library(triptych::triptych ALIAS triptych_all)

install(TARGETS triptych_options triptych_all ${triptych_layers} EXPORT triptychTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/triptych COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "kernels" EXCLUDE)

set(triptych_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/triptych)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/triptychConfig.cmake.in
  ${PROJECT_BINARY_DIR}/triptychConfig.cmake INSTALL_DESTINATION ${triptych_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/triptychConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT triptychTargets NAMESPACE triptych:: DESTINATION ${triptych_package_dir} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/triptychConfig.cmake ${PROJECT_BINARY_DIR}/triptychConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/TriptychLibraries.cmake DESTINATION ${triptych_package_dir} COMPONENT development)

get_property(triptych_program GLOBAL PROPERTY TRIPTYCH_EXECUTABLE)
if(triptych_program)
  install(TARGETS ${triptych_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The program writes its own manual page and completions; built for another processor, in the emulator.
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(pages ${PROJECT_BINARY_DIR}/generated/pages)
    add_custom_command(OUTPUT ${pages}/triptych.1 ${pages}/triptych.bash ${pages}/_triptych ${pages}/triptych.fish
      COMMAND ${CMAKE_COMMAND} -D "PROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:${triptych_program}>" -D FOLDER=${pages}
              -P ${PROJECT_SOURCE_DIR}/cmake/write_pages.cmake
      DEPENDS ${triptych_program} COMMENT "Writing the manual page and completions" VERBATIM)
    add_custom_target(triptych_pages ALL DEPENDS ${pages}/triptych.1)
    install(FILES ${pages}/triptych.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
    install(FILES ${pages}/triptych.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME triptych
      COMPONENT program)
    install(FILES ${pages}/_triptych DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
    install(FILES ${pages}/triptych.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
  endif()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
