# The page at "/" of `triptych serve`, embedded as a source file (cmake/EmbedWebPage.cmake).
set(triptych_web_files index.html page.css page.js events.js icon.svg)
set(triptych_web_paths ${triptych_web_files})
list(TRANSFORM triptych_web_paths PREPEND ${PROJECT_SOURCE_DIR}/src/server/web/)
set(triptych_web_source ${PROJECT_BINARY_DIR}/generated/web_pages.cc)
add_custom_command(OUTPUT ${triptych_web_source}
  COMMAND ${CMAKE_COMMAND} "-DFILES=${triptych_web_files}" -DSOURCE=${PROJECT_SOURCE_DIR}/src/server/web -DOUT=${triptych_web_source}
    -P ${PROJECT_SOURCE_DIR}/cmake/EmbedWebPage.cmake
  DEPENDS ${triptych_web_paths} ${PROJECT_SOURCE_DIR}/cmake/EmbedWebPage.cmake
  VERBATIM)
target_sources(triptych_server PRIVATE ${triptych_web_source})
set_source_files_properties(${triptych_web_source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
