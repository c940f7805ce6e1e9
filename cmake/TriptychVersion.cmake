# build_info(): version, source revision, compiler and build type, compiled into the base layer. The revision is asked of git
# at every build, and the file is written anew only when the answer has changed.
find_package(Git QUIET)
set(TRIPTYCH_BUILD_INFO ${PROJECT_BINARY_DIR}/generated/build_info.cc)
add_custom_target(triptych_build_info
  COMMAND ${CMAKE_COMMAND} -D GIT=${GIT_EXECUTABLE} -D SOURCE=${PROJECT_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
          -D "COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -D "BUILD_TYPE=${CMAKE_BUILD_TYPE}"
          -D "SANITIZERS=${TRIPTYCH_SANITIZE}" -D PROCESSOR=${CMAKE_SYSTEM_PROCESSOR}
          -D INPUT=${PROJECT_SOURCE_DIR}/cmake/build_info.cc.in -D OUTPUT=${TRIPTYCH_BUILD_INFO}
          -P ${PROJECT_SOURCE_DIR}/cmake/write_build_info.cmake
  BYPRODUCTS ${TRIPTYCH_BUILD_INFO} COMMENT "" VERBATIM)
target_sources(triptych_base PRIVATE ${TRIPTYCH_BUILD_INFO})
add_dependencies(triptych_base triptych_build_info)
