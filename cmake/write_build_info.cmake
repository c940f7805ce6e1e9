# Run at build time by TriptychVersion.cmake: fills build_info.cc.in. Sources outside a git checkout have revision "unknown".
set(REVISION unknown)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --tags --match "v[0-9]*" RESULT_VARIABLE failed
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed AND revision MATCHES "^[A-Za-z0-9._-]+$")
    set(REVISION ${revision})
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
