# The shared library of the public interface, and cmake --install in three components: `program` (the program with its pages,
# which needs nothing else of the build), `library` (libtriptych.so.0) and `development` (headers and a CMake package).
# A project that uses the library writes
#   find_package(triptych 0.1 REQUIRED)
#   target_link_libraries(app PRIVATE triptych::triptych)
# and includes <triptych/triptych.h>.
include(CMakePackageConfigHelpers)

# Not under a sanitizer: a project that uses the library would need its flags, and clang links no runtime into a library.
if(NOT TRIPTYCH_SANITIZE)
  # The layers are linked in. All of the public interface is, although nothing in the library itself calls it.
  add_library(triptych_shared SHARED $<TARGET_OBJECTS:triptych_api>)
  target_link_libraries(triptych_shared PRIVATE triptych_engine)
  target_include_directories(triptych_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(triptych_shared INTERFACE cxx_std_20)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/libtriptych.map)
  target_link_options(triptych_shared PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined -Wl,--as-needed)
  set_target_properties(triptych_shared PROPERTIES OUTPUT_NAME triptych EXPORT_NAME triptych LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${exports})
  add_library(triptych::triptych ALIAS triptych_shared)

  # Said before anything is copied, where only the program was built.
  foreach(component library development)
    install(CODE "if(NOT EXISTS \"$<TARGET_FILE:triptych_shared>\")
      message(FATAL_ERROR \"$<TARGET_FILE_NAME:triptych_shared> is not built. Either build it, cmake --build ${PROJECT_BINARY_DIR}, \"
        \"or install the program alone: cmake --install ${PROJECT_BINARY_DIR} --component program\")
    endif()" COMPONENT ${component})
  endforeach()

  install(TARGETS triptych_shared EXPORT triptychTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
    FILES_MATCHING PATTERN "*.h")

  set(triptych_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/triptych)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/triptychConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(EXPORT triptychTargets FILE triptychTargets.cmake NAMESPACE triptych:: DESTINATION ${triptych_package_dir}
    COMPONENT development)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/triptychConfig.cmake ${PROJECT_BINARY_DIR}/triptychConfigVersion.cmake
    DESTINATION ${triptych_package_dir} COMPONENT development)
endif()

get_property(triptych_program GLOBAL PROPERTY TRIPTYCH_EXECUTABLE)
if(triptych_program)
  install(TARGETS ${triptych_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The program writes its own manual page and completions as soon as it is linked, so that whoever builds nothing else can
  # install it; built for another processor, in the emulator.
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(pages ${PROJECT_BINARY_DIR}/generated/pages)
    add_custom_command(TARGET ${triptych_program} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -D "PROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:${triptych_program}>" -D FOLDER=${pages}
              -P ${PROJECT_SOURCE_DIR}/cmake/write_pages.cmake
      BYPRODUCTS ${pages}/triptych.1 ${pages}/triptych.bash ${pages}/_triptych ${pages}/triptych.fish
      COMMENT "Writing the manual page and completions" VERBATIM)
    install(FILES ${pages}/triptych.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
    install(FILES ${pages}/triptych.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME triptych
      COMPONENT program)
    install(FILES ${pages}/_triptych DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
    install(FILES ${pages}/triptych.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
  endif()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
